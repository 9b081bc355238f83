"""One file per claim: what is run, what is measured, how it is shown. `harness` does the rest."""

EXPERIMENTS = {
    "replay": "pcpg.experiments.replay:EXPERIMENT",
    "lock": "pcpg.experiments.lock:EXPERIMENT",
    "environments": "pcpg.experiments.environments:EXPERIMENT",
    "unseen": "pcpg.experiments.unseen:EXPERIMENT",
    "maze": "pcpg.experiments.maze:EXPERIMENT",
    "mountaincar": "pcpg.experiments.mountaincar:EXPERIMENT",
    "table1": "pcpg.experiments.table1.command:ReproduceTable1",
    "certificates": "pcpg.experiments.certificates:ReproduceCertificates",
}
"""By the name after `pcpg reproduce`; a new experiment is a line here and a file there."""
