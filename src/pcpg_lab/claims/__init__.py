"""One file per claim: its cells, measurements and presentation. `harness` does the rest."""

EXPERIMENTS = {
    "replay": "pcpg_lab.claims.replay:CLAIM",
    "lock": "pcpg_lab.claims.lock:CLAIM",
    "environments": "pcpg_lab.claims.environments:CLAIM",
    "unseen": "pcpg_lab.claims.environments:UNSEEN_CLAIM",
    "levels": "pcpg_lab.claims.levels:CLAIM",
    "control": "pcpg_lab.claims.control:CLAIM",
    "maze": "pcpg_lab.claims.maze:CLAIM",
    "mountaincar": "pcpg_lab.claims.mountaincar:CLAIM",
    "table1": "pcpg_lab.table1.command:ReproduceTable1",
    "certificates": "pcpg_lab.claims.certificates:ReproduceCertificates",
}
"""By the name after `pcpg reproduce`; a new claim is a line here and a file there."""
