"""Name everything that can go wrong: one root, and for each leaf a stable code and a remedy.

A message says what happened, where, and what to do.
The fields of an error are attributes too, so that callers never parse text.
`exit_code` is what the command ends with: 75 when a retry may help, 77 when fenced, 78 when a person is needed.
Anything else that ends a command is an error in Penstock itself, and ends it with 70, as sysexits calls it.
"""

# ruff: noqa: F403 - an error is named once, where its class is; these modules hold nothing else

from __future__ import annotations

from penstock.errors.checkpoints import *
from penstock.errors.gates import *
from penstock.errors.jobs import *
from penstock.errors.of_receivers import *
from penstock.errors.of_sinks import *
from penstock.errors.of_sources import *
from penstock.errors.root import *
from penstock.errors.work import *
