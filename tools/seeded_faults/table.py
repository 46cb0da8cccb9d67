"""All seeded faults."""

from __future__ import annotations

from tools.seeded_faults import faults_of_adapters, faults_of_commands, faults_of_core, faults_of_roles
from tools.seeded_faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *faults_of_core.FAULTS,
    *faults_of_adapters.FAULTS,
    *faults_of_roles.FAULTS,
    *faults_of_commands.FAULTS,
)
