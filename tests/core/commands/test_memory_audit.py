"""The audit in memory meets the suite of all audits."""

from __future__ import annotations

import pytest
from support.conformance.audit import AuditConformance

from dlrover_nb.core.commands.memory_audit import MemoryAudit


class TestMemoryAudit(AuditConformance):
    @pytest.fixture
    def open_audit(self):
        audit = MemoryAudit()
        return lambda: audit
