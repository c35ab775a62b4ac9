"""Every rule by its code: about layouts, about clusters, and the assertions of other systems."""

from __future__ import annotations

from rltui.check.frameworks import BY_DIALECT, launchers, spelling
from rltui.check.live import LIVE_REGISTRY
from rltui.check.run import REGISTRY

FRAMEWORK_RULES = {rule.code: rule for rules in BY_DIALECT.values() for rule in rules}
RULES = {**REGISTRY, **LIVE_REGISTRY, **FRAMEWORK_RULES, **spelling.REGISTRY, **launchers.REGISTRY}

assert len(FRAMEWORK_RULES) == sum(map(len, BY_DIALECT.values())), "a code is there twice"
