"""Names of the harness under which `table1` imports them."""

from pcpg.experiments.harness import STOPPED as STOPPED
from pcpg.experiments.harness import Record as Record
from pcpg.experiments.harness import Scale as Scale
from pcpg.experiments.harness import commit as commit
