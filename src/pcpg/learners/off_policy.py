"""The off-policy learner: many cheap updates on minibatches that were drawn beforehand, in one compiled program.

| actions            | critic                                            | policy                                     |
|--------------------|---------------------------------------------------|--------------------------------------------|
| Box                | Q(s, a), layer norm after every layer             | a = tanh(mean + deviation * noise) (SAC)   |
| Discrete           | Q(s, .)                                           | softmax of Q / temperature, mixed with     |
| MultiDiscrete      | the sum of a Q for each part of the action        | uniform actions                            |

    y = R + discount * (min over critics of Q'(s', a') - alpha log pi(a'|s'))     R: discounted sum of n rewards
    loss = mean (Q(s, a) - y)^2 + mean (alpha log pi(a|s) - Q(s, a)) + alpha (H - H_target)

Q' has averaged weights. All parameters are one vector with one Adam: few, large kernels. Nothing random happens inside
the program, noise comes with the minibatch, so a seed's stream of random numbers is one of the host.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pcpg.envs.spaces import Space
from pcpg.learners.update import Adam, adam_step, init_adam
from pcpg.policies.off_policy import LOG_STD, DeepPolicy, Layers, Scale, init_body_for, init_layers, parts_of
from pcpg.shapes import Array

MAX_GRAD_NORM = 20.0
LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Params(NamedTuple):
    """Everything that is trained."""

    body: Any  # convolutions for images, shared by actor and critics; None for vectors
    actor: Layers | None  # None: the policy is that of the values
    critics: Layers  # leaves [critics, ...]
    log_alpha: Array


class Learner(NamedTuple):
    """The state of one learner; vectors hold all parameters."""

    params: Array
    target: Array  # averaged quickly: the critic of the targets
    average: Array  # averaged slowly: the policy that is handed out
    adam: Adam


class Minibatch(NamedTuple):
    """Transitions of n steps, [..., B]."""

    observations: Array
    actions: Array  # real ones in [-1, 1]
    returns: Array  # sum of n discounted, scaled rewards
    discounts: Array  # of the value n steps later; 0 where the episode ended
    later: Array  # observations n steps later
    floors: Array  # below which no target may lie: returns that were earned from here on
    cloned: Array  # 1 where the action is one to imitate
    noise: Array  # [..., 2, B, size] standard normal; [..., 0] for discrete actions


class Rates(NamedTuple):
    """Numbers that change without another program."""

    learning: Array
    tau: Array  # of the target
    average: Array  # of the policy that is handed out
    entropy: Array  # its target, for a real action of one entry
    cloning: Array  # weight of imitation, in units of the values
    low: Array  # bounds on the values of the targets
    high: Array


class LearnInputs(NamedTuple):
    """Everything that some updates depend on."""

    learner: Learner
    batches: Minibatch  # [updates, B, ...]
    scale: Scale
    rates: Rates


class Learned(NamedTuple):
    """The learner after some updates, and means over them."""

    learner: Learner
    loss: Array
    value: Array
    alpha: Array


def init_params(
    rng: np.random.Generator, seen: Space, space: Space, *, hidden: tuple[int, ...], critics: int
) -> Params:
    """Fresh parameters, drawn on the host."""
    body, size = init_body_for(rng, seen)
    parts = parts_of(space)
    actor = None if parts else init_layers(rng, size, hidden, 2 * math.prod(space.shape))
    inputs, outputs = (size, sum(parts)) if parts else (size + math.prod(space.shape), 1)
    each = [init_layers(rng, inputs, hidden, outputs) for _ in range(critics)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    return Params(body, actor, stacked, np.asarray(math.log(0.1), np.float32))


def init_learner(params: Params) -> Learner:
    """A learner before its first update."""
    vector = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]).astype(np.float32)
    return Learner(vector, vector.copy(), vector.copy(), init_adam(vector))


def unravelled(vector: Array, like: Params) -> Params:
    """The parameters in a vector, on the host."""
    leaves, tree = jax.tree.flatten(like)
    cuts = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = np.split(np.asarray(vector), cuts)
    shaped = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(tree, shaped)


def rescaled(learner: Learner, like: Params, factor: float) -> Learner:
    """The learner whose values are `factor` times as large: what it takes where the scale of rewards changes."""

    def scaled(vector: Array) -> np.ndarray:
        params = unravelled(vector, like)
        *layers, last = params.critics.layers
        head = jax.tree.map(lambda leaf: leaf * np.float32(factor), last)
        params = params._replace(critics=Layers((*layers, head)))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])

    return learner._replace(**{name: scaled(getattr(learner, name)) for name in ("params", "target", "average")})


def policy_of(
    vector: Array, like: Params, scale: Scale, space: Space, temperature: float, epsilon: float
) -> DeepPolicy:
    """The policy in a vector of parameters."""
    params = unravelled(vector, like)
    layers = params.critics if params.actor is None else params.actor  # the mean of the critics' values decides
    numbers = (np.asarray(number, np.float32) for number in (temperature, epsilon, 0.0))
    return DeepPolicy(params.body, layers, scale, *numbers, space=space, is_final=False)


class OffPolicy(NamedTuple):
    """The constants of the program."""

    like: Params
    space: Space

    def learn(self, inputs: LearnInputs) -> Learned:
        """One update for each minibatch."""
        rates = inputs.rates
        _, unravel = ravel_pytree(jax.tree.map(jnp.asarray, self.like))
        loss_of = jax.value_and_grad(self._loss, has_aux=True)

        def update(learner: Learner, batch: Minibatch) -> tuple[Learner, tuple[jax.Array, ...]]:
            target: Params = unravel(jnp.asarray(learner.target))
            (loss, (value, alpha)), gradient = loss_of(jnp.asarray(learner.params), unravel, target, batch, inputs)
            step, adam = adam_step(gradient, learner.adam, jnp.asarray(rates.learning), max_grad_norm=MAX_GRAD_NORM)
            params = learner.params + step
            quick = learner.target + rates.tau * (params - learner.target)
            slow = learner.average + rates.average * (params - learner.average)
            return Learner(params, quick, slow, adam), (loss, value, alpha)

        learner, shown = jax.lax.scan(update, jax.tree.map(jnp.asarray, inputs.learner), inputs.batches)
        return Learned(learner, *(jnp.mean(one) for one in shown))

    def _loss(
        self, vector: jax.Array, unravel: Any, target: Params, batch: Minibatch, inputs: LearnInputs
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        params: Params = unravel(vector)
        here = inputs.scale.seen(batch.observations, params.body)
        later = inputs.scale.seen(batch.later, target.body)
        if params.actor is None:
            return self._loss_of_values(params, target, here, later, batch, inputs.rates)
        alpha = jax.lax.stop_gradient(jnp.exp(params.log_alpha))
        after, after_log_prob = squashed(params.actor(later), batch.noise[0])
        ahead = jnp.min(values(target.critics, later, after), axis=0) - alpha * after_log_prob
        y = jax.lax.stop_gradient(goal(batch, ahead, inputs.rates))
        q = values(params.critics, here, jnp.asarray(batch.actions))
        critic_loss = jnp.sum(jnp.mean((q - y) ** 2, axis=-1))
        seen = jax.lax.stop_gradient(here)
        action, log_prob = squashed(params.actor(seen), batch.noise[1])
        frozen = jax.tree.map(jax.lax.stop_gradient, params.critics)
        worth = jnp.min(values(frozen, seen, action), axis=0)
        actor_loss = jnp.mean(alpha * log_prob - worth)
        actor_loss += inputs.rates.cloning * imitation(params, frozen, seen, batch)
        entropy = jax.lax.stop_gradient(-jnp.mean(log_prob))
        wanted = inputs.rates.entropy * action.shape[-1]
        alpha_loss = jnp.clip(params.log_alpha, -9.0, 2.0) * (entropy - wanted)
        return critic_loss + actor_loss + alpha_loss, (jnp.mean(q), alpha)

    def _loss_of_values(
        self, params: Params, target: Params, here: jax.Array, later: jax.Array, batch: Minibatch, rates: Rates
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        parts = parts_of(self.space)
        q, ahead_own = all_values(params.critics, here), jnp.mean(all_values(params.critics, later), axis=0)
        ahead = jnp.min(all_values(target.critics, later), axis=0)
        best = [jnp.argmax(part, axis=-1) for part in in_parts(ahead_own, parts)]
        y = jax.lax.stop_gradient(goal(batch, taken(ahead, best, parts), rates))
        actions = jnp.asarray(batch.actions)
        chosen = [actions] if not self.space.shape else list(jnp.moveaxis(actions, -1, 0))
        value = jax.vmap(lambda one: taken(one, chosen, parts))(q)
        return jnp.sum(jnp.mean((value - y) ** 2, axis=-1)), (jnp.mean(value), jnp.zeros(()))


def goal(batch: Minibatch, ahead: jax.Array, rates: Rates) -> jax.Array:
    """The targets, within what values can be."""
    targets = jnp.maximum(batch.returns + batch.discounts * ahead, batch.floors)
    return jnp.clip(targets, rates.low, rates.high)


def imitation(params: Params, critics: Layers, seen: jax.Array, batch: Minibatch) -> jax.Array:
    """The squared distance to the actions of the best episodes, where they are worth more than the policy's own.

    It is in units of the values, so that its weight does not depend on the scale of rewards.
    """
    assert params.actor is not None
    chosen = jnp.tanh(mean_and_log_std(params.actor(seen))[0])
    actions = jnp.asarray(batch.actions)
    theirs = jnp.min(values(critics, seen, actions), axis=0)
    is_better = theirs > jnp.min(values(critics, seen, jax.lax.stop_gradient(chosen)), axis=0)
    unit = jnp.mean(jnp.abs(theirs))
    return unit * jnp.mean(batch.cloned * is_better * jnp.mean((chosen - actions) ** 2, axis=-1))


def values(critics: Layers, here: jax.Array, actions: jax.Array) -> jax.Array:
    """Q of each critic, [critics, B]."""
    both = jnp.concatenate([here, actions], axis=-1)
    return jax.vmap(lambda critic: critic(both)[..., 0])(critics)


def all_values(critics: Layers, here: jax.Array) -> jax.Array:
    """Q of all actions, one part of them after the other, [critics, B, outputs]."""
    return jax.vmap(lambda critic: critic(here))(critics)


def in_parts(q: jax.Array, parts: tuple[int, ...]) -> list[jax.Array]:
    """The values of each part of an action."""
    return jnp.split(q, np.cumsum(parts)[:-1].tolist(), axis=-1)


def taken(q: jax.Array, actions: list[jax.Array], parts: tuple[int, ...]) -> jax.Array:
    """The value of actions [B], the mean over their parts: comparisons, since a gather's gradient is a slow scatter."""
    found = [
        jnp.sum(jnp.where(action[..., None] == jnp.arange(n), part, 0.0), axis=-1)
        for part, action, n in zip(in_parts(q, parts), actions, parts, strict=True)
    ]
    return sum(found, jnp.zeros(())) / len(parts)


def squashed(outputs: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Actions in (-1, 1) and their log-density."""
    mean, log_std = mean_and_log_std(outputs)
    before = mean + jnp.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - LOG_SQRT_2_PI
    # log(1 - tanh(x)^2), in a form that does not overflow
    slope = 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))
    return jnp.tanh(before), jnp.sum(density - slope, axis=-1)


def mean_and_log_std(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two halves of an actor's outputs, the second within its bounds."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    low, high = LOG_STD
    return mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)
