"""The settings of every algorithm as types, so that an editor completes `config` and a type checker finds a wrong name.

    settings: pcpg.Settings = {"ppo": {"learning_rate": 1e-3}}
    pcpg.train(env, "ppo", config=settings)

They are those of the dataclasses in `pcpg.algos` (a test compares them), and nothing at run time: plain dicts.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class PPOSettings(TypedDict, total=False):
    num_updates: int
    num_episodes: int
    num_epochs: int
    minibatch_size: int
    learning_rate: float
    gamma: float
    gae_lambda: float
    clip_eps: float
    entropy_coef: float
    value_coef: float
    max_grad_norm: float
    hidden: Sequence[int]
    shared_body: bool
    normalise_observations: bool
    normalise_rewards: bool
    square_code: int
    body: str


class ExploreSettings(TypedDict, total=False):
    max_policies: int
    min_growth: float
    patience: int
    bonus_form: Literal["indicator", "quadratic", "root"]
    beta: float
    bonus_coef: float
    bonus_scale: Literal["cover", "raw"]
    bonus_limit: float
    episodic: Literal["off", "beside", "times"]
    episodic_coef: float
    reward_coef: float
    ridge: float
    ridge_scale: Literal["raw", "features"]
    weights: Literal["d-optimal", "uniform"]
    visit_episodes: int
    num_groups: int
    start_share: float
    epsilon: float
    advantage_floor: float
    anneal_to: float
    reward_first: float
    random_return: float | None


class ExploitSettings(TypedDict, total=False):
    num_rounds: int
    start_share: float
    epsilon: float
    advantage_floor: float
    anneal: bool
    warm_start: bool
    keep_best: bool


class PCPGSettings(TypedDict, total=False):
    ppo: PPOSettings
    explore: ExploreSettings
    exploit: ExploitSettings


class KeepSettings(TypedDict, total=False):
    capacity: int
    pool: int
    sample_rate: float
    features: Literal["observation", "inverse-dynamics"]
    bandwidth: float
    bandwidth_scale: Literal["median", "raw"]
    tolerance: float
    max_landmarks: int
    num_actions: int
    ignored: Sequence[int]


class ReplayExploreSettings(TypedDict, total=False):
    num_episodes: int
    roll_in_share: float
    sharpness: float
    bonus_coef: float
    backups: int
    discount: float
    min_value: float
    patience: int
    closer_looks: int
    attempts: float
    weights: Literal["d-optimal", "uniform"]
    ridge: float


class ReplayExploitSettings(TypedDict, total=False):
    backups: int
    refine: float
    discount: float
    smooth_discount: float
    visit_episodes: int
    steps: int
    tolerance: float


class ReplaySettings(TypedDict, total=False):
    replay: KeepSettings
    explore: ReplayExploreSettings
    exploit: ReplayExploitSettings


class DeepLearnSettings(TypedDict, total=False):
    updates: float
    batch: int
    learning_rate: float
    tau: float
    average: float
    critics: int
    hidden: Sequence[int]
    steps_ahead: int
    discount: float
    while_playing: bool
    entropy: float
    best_share: float
    cloning: float
    best_steps: int


class DeepExploreSettings(TypedDict, total=False):
    updates: float
    learning_rate: float
    steps_ahead: int
    num_features: int
    bandwidth: float
    bonus_form: Literal["root", "quadratic"]
    reward_coef: float
    bonus_coef: float
    task_share: float
    cover: int


class DeepSettings(TypedDict, total=False):
    learn: DeepLearnSettings
    explore: DeepExploreSettings
    budget: int
    num_episodes: int
    sure_share: float
    confirm_episodes: int
    offline_updates: int


class BaselineSettings(TypedDict, total=False):
    ppo: PPOSettings
    bonus: str | Mapping[str, object] | None
    budget: int
    num_rounds: int
    visit_episodes: int
    autoreset: bool


Settings = PCPGSettings | ReplaySettings | DeepSettings | BaselineSettings
