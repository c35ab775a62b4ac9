"""Start-up assertions of other systems, a table a framework, as rules over the settings of a script.

A code is stable for ever. Read from the frameworks' own validation at the commits that the tables name, and said in
our words; a value that a script leaves open, or whose default differs between versions, makes an assertion silent.
"""

from __future__ import annotations

from rltui.check.frameworks import (
    areal,
    axolotl,
    easyr1,
    nemo_rl,
    oat,
    open_instruct,
    openrlhf,
    prime_rl,
    rlinf,
    roll,
    skyrl,
    slime,
    swift,
    trinity,
    trl,
    verl,
)

MODULES = (
    verl,
    easyr1,
    trinity,
    slime,
    trl,
    swift,
    openrlhf,
    skyrl,
    prime_rl,
    nemo_rl,
    open_instruct,
    areal,
    roll,
    oat,
    axolotl,
    rlinf,
)
BY_DIALECT = {module.FRAMEWORK.dialect: module.FRAMEWORK.rules(module.TABLE) for module in MODULES}
