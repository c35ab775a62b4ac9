"""Kinds of errors about settings: who looks them over, what is said of those that are named, and of others.

Programs refuse settings before their work begins, in the few functions that read, check or set up; so these rows look
at the function as well as at the words.
"""

from __future__ import annotations

from rltui.diagnose.kind import PROGRAM, RAN_OUT, REFUSES, Kind
from rltui.diagnose.kinds_by_place import KERNELS

_SETTING = (
    r"--?[a-z][\w.-]+|(?!\w*(?:tensors?|seqlens|logits|masks?|embeds)\b)[a-z]+(?:_[a-z]+)+|"
    r"\w*config\w*|arguments?|options?|settings?"
)

_NAMED = r"--?[a-z][\w.-]+|(?<=[`'\"])[a-z]+(?:_[a-z]+)+|\w*config\w*|arguments?|options?|settings?"

_COMPARED = r"(?:is|are) (?:smaller|less|lower|larger|greater|bigger|higher|more) than|exceeds?"

_LOOKS_OVER = (
    r" in (?:\w+\.)*_*(?:(?:valid|verif|check|pars)\w*_(?:\w+_)?(?:arg|conf|setting|option|param)\w*|__post_init__)\Z"
)

_READERS = (
    r"/(?:hydra/(?!main\.py)|omegaconf|argparse|jsonargparse|tyro|draccus|simple_parsing)\b"
    r"(?![^\n]*(?:instantiate| in (?:_?run|_run_hydra)\Z))[^\n]*\Z"
)
"""Innermost frames of what reads settings; Hydra also calls the program, whose errors are its own."""

_AT_WORK = r"forward|backward|generate|rollout|alloc|fill_|update_(?!layer)|compute_|train_actor|\w*_step"

_BEFORE_WORK = (
    rf"\A(?!(?s:.*) in (?:_*(?:{_AT_WORK})\w*|\w*_(?:forward|backward)|__(?:call|torch_dispatch|torch_function)__)\Z)"
)
"""Settings are refused before the work begins."""

_REFUSED = (
    r"must|should|ha(?:s|ve) to|needs? to|(?<!not )require[sd]?|can ?not|can't|not allowed|not supported|"
    r"only support\w*|unsupported|invalid|unknown|expected|only|incompatible|mutually|set to|may be set|"
    r"validation"
)

_COMBINATIONS = (
    r"\b(?:is|are) (?:\w+ )?(?:(?:not|only) (?:\w+ )?supported|unsupported)\b|\b(?:does|do) not (?:yet )?support\b|"
    r"\bnot (?:yet )?compatible with\b|\bincompatible with\b|\bmutually exclusive\b|"
    r"\bcan(?:'t|not| not) (?:be used|use|specify|combine|pass)\b|\bmust be (?:enabled|disabled|set|used)\b|"
    r"^(?:invalid|unknown|unsupported) (?:\w+ ){1,3}\w*: ?\S"
)
"""What is said of settings that do not go together, or of a value that is none of those known."""

_SETS_UP = (
    r" in (?:__init__|__post_init__|_*(?:setup|init|prepare|build|make|create)\w*|"
    r"\w*(?:valid|verif|check|config|parse)\w*)\Z"
)

_OF_ROWS_OR_TENSORS = (
    r"\A(?!.*\b(?:tensors?|shapes?|dtypes?|tokens?|rows?|columns?|messages?|images?|videos?|audios?|samples?|answers?|"
    r"responses?|logits|masks?|grad\w*|weights?|state[_ ]dict|nodes?|graphs?|instances? of|input_\w+|inputs?|labels)\b|"
    r".*<class )"
)
"""Before what is said: that it is of none of the things that a program works on."""

_WITH_VALUE = (
    r"(?-i:(?<![\w.])-{0,2}(?!shape|dtype|ndim|numel|stride|device|dim\b|len)[a-z][\w.-]*[a-z_])"
    r"\s?={1,2}\s?[\w'\"\[({.-]+"
)
"""A setting with the value that it has or should have, as in ``use_liger_kernel=True``."""

_AMONG = (
    r"\bavailable(?: \w+){0,2}(?: are| is)?:|\bchoose (?:one )?(?:from|of|between|either)\b|\bselect (?:one )?from\b|"
    r"\b(?:supported|valid|known|allowed|possible) (?:\w+ ){0,3}(?:are|is|include)?:|"
    r"\b(?:options|choices)(?: are| is|:)|\bexpected (?:one of|either|['\"`]\w+['\"`] or)|"
    r"\b(?:must|should|has to|needs to) be (?:in \W|one of|either|any of|['\"`]\w+['\"`],? or)"
)
"""What goes before the values that a setting may have."""

_NONE_KNOWN = (
    r"\A['\"]?(?:[\w() -]{1,30}: )?(?:unknown|unsupported|invalid|unrecogni[sz]ed|illegal|undefined) "
    r"(?:[\w.-]+[ /]){0,4}[\w.-]+(?:[:=] ?|\s(?=['\"`]))\S|"
    r"['\"`]? (?:is )?(?:not (?:registered|recogni[sz]ed|a (?:valid|known|supported) \w+)|"
    r"not (?:found )?in (?:the )?(?:\w+ )?(?:registry|mapping))\b|"
    r"\bno such (?:[\w-]+ ){1,3}?[\w-]+: ?\S"
)

_LEFT_OPEN = (
    r"\b(?:either|both|exactly one of|at least one of|one of)\b.{0,120}\b(?:must|should|required|provided|specified|"
    r"set|configured|passed|given)\b|"
    r"\b(?:must|should|need to|needs to|have to|please) (?:be )?(?:provided?|specify|specified|set|configured?|passed?|"
    r"given|defined?|enabled?|disabled?|chosen)\b|"
    r"\b(?:is|are) (?:required but )?not (?:set|specified|configured|provided|given|defined|enabled)\b|"
    r"\bno [\w -]{3,40} (?:configured|specified|provided|given)\b|"
    r"\bto be (?:set|specified|provided|enabled|configured)\b|"
    r"\bmutually exclusive\b|\bcan(?:not|'t) both\b|\bnot both\b|\bonly one of\b|"
    r"\b(?:can only be used|is only (?:valid|supported|available|allowed)|only works?) (?:with|when|if|for|in)\b"
)
"""What is said of settings that were left open, or that leave no room for one another."""

_BOUND = (
    r"\b(?:must|should|has to|needs? to) be (?:[<>]=?|(?:larger|greater|higher|bigger|smaller|less|lower) than|"
    r"at least|at most|(?:strictly )?positive|non-?negative)(?!\w)"
)
"""What is said of a number that is out of its bounds."""

_ADVISED = (
    rf"\A(?!.*{RAN_OUT}).*?(?:"
    r"\b(?:requires?|needs?|set|pass|use|with|when|only) [`'\"]?[a-z]+(?:_[a-z]+)+ ?={1,2} ?(?:true|false|none)\b|"
    r"(?:^|[.;,] |\bplease )(?:set|disable|enable|increase|decrease|reduce|lower|raise|turn (?:on|off)) [`'\"]?"
    r"(?:--)?"
    r"[a-z]+(?:_[a-z]+)+\b(?!\()|\b(?:must|should) have [a-z]+(?:_[a-z]+)+ (?:enabled|disabled|set)\b|"
    r"\b\w+=\d+ [<>]=? (?:args|config|cfg)\.\w+=\d)"
)
"""What the refusal itself says is to be set, wherever it is raised."""

_VARIABLE_OPEN = (
    r"(?-i:\b(?!\w*(?:TOKEN|KEY|HOME|RANK|WORLD_SIZE|MASTER_|CUDA))[A-Z][A-Z\d]*(?:_[A-Z\d]+)+)[`'\"]? "
    r"(?:environment variable |env var )?(?:is not|isn't|must be|needs? to be|has to be) (?:set|defined|exported)\b"
)
"""An environment variable that is a setting: neither a key, nor what a launcher or an installation sets."""

_STARTS = (
    r" in (?:main|run|launch|__init__|_*(?:setup|init|get|from|resolve|load|select|register|prepare|build|create)"
    r"\w*|\w*(?:config|cfg|args|setting|option|hparam)\w*)\Z"
)
"""Functions that make of settings what a program works with."""

_OF_SETTINGS = ("program", "learner", "settings", "engine", "ray", "reward")


SETTINGS: tuple[Kind, ...] = (
    # the code calls functions wrongly, or in the wrong order
    Kind(
        PROGRAM,
        REFUSES,
        r"\b(?:kwargs?|keyword) [`'\"\[]|\bcall [\w.]+(?:\(\))? first\b|\bmust be called\b|"
        r"\b(?:must|should|please) .{0,60}\bbefore (?:\w+ing|\w+tion)\b|"
        r"\b(?:be|expect(?:s|ed)?|got) (?:an? )?(?:non-?)?callable\b|\bis not (?:an? )?callable\b",
    ),
    Kind(PROGRAM, REFUSES, frames=KERNELS),
    # whatever the words: a reader of settings, or a function that looks them over, refused them
    Kind("settings_rejected", REFUSES, frames=_READERS),
    Kind("settings_rejected", REFUSES, parts=("program", "learner", "settings", "ray", "data"), frames=_LOOKS_OVER),
    Kind(
        "settings_rejected",
        REFUSES + r"|\w*(?:Config|Validation|Argument)\w*(?:Error|Exception)",
        r"\b(?:target.?modules|layer class)\b.{0,200}\bin (?:the )?(?:\w+ )?model\b|"
        r"please (?:specify|set|provide|use|pass)|"
        r"^(?:unknown|unsupported|unrecogni[sz]ed) (?:[\w-]+ ){1,4}\w+: ?\S+$|"
        r"^(?:invalid|unknown|unsupported|unrecogni[sz]ed) (?:[\w-]+ ){0,4}[\w-]+\b.{0,60}"
        r"\b(?:expected|must be|choose|available|supported|one of|valid (?:options|choices|values))\b|"
        r"\b(?:remaining|unused|extra|unexpected)[ _]arg(?:v|s|uments?)\b.{0,20}--|\barguments are not used\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b(?!/).{{0,80}}\b(?:{_REFUSED})\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b.{{0,40}}\b(?:{_COMPARED})\b.{{0,20}}(?:{_SETTING})\b|"
        rf"\b(?:{_REFUSED})\b.{{0,160}}[\s`'\"(.](?:{_NAMED})\b",
        parts=("program", "learner", "settings", "engine", "ray", "checkpoint"),
        frames=_BEFORE_WORK,
    ),
    Kind("settings_rejected", REFUSES, _ADVISED, parts=_OF_SETTINGS),
    # a combination that is refused while things are set up, with no setting named
    Kind("settings_rejected", REFUSES, _COMBINATIONS, parts=("program", "learner", "settings", "ray"), frames=_SETS_UP),
    Kind("settings_rejected", r"\w*ValidationError|\w*Config\w*(?:Error|Exception)|Argument(?:Type)?Error"),
    Kind(
        "settings_rejected",
        "AssertionError",
        r"^(?:AssertionError )?assert (?:self|args|\w*config|cfg)\.\w+ ?(?:[<>!=]=?|in\b|is\b)",
        frames=r" in (?:__init__|__post_init__|\w*(?:valid|check|setup|parse|build|make)\w*)\Z",
    ),
    Kind(
        "settings_rejected",
        "AssertionError",
        r"\bassert\b.{0,80}\b(?:args|config|cfg)\.\w+.{0,20}[<>!=%]",
        frames=_BEFORE_WORK,
    ),
    # whatever they are of: a name with its value, or the values that there are
    Kind(
        "settings_rejected",
        REFUSES,
        rf"\A(?!.*{RAN_OUT}){_OF_ROWS_OR_TENSORS}.*?(?:(?:{_WITH_VALUE})[^.]{{0,80}}?\b(?:requires?|needs|only|not|incompatible|cannot|can't|"
        r"must|should|conflicts?)\b|"
        r"\b(?:requires?|needs?|only (?:supports?|works? with|allows?)|set|pass|use|try|enable|disable|specify) "
        rf"[`'\"]?(?:{_WITH_VALUE})|"
        r"\b(?:set|pass|use|try|enable|disable|specify|provide|remove|unset) (?:the )?[`'\"]?--[a-z])",
        frames=_BEFORE_WORK,
    ),
    Kind("settings_rejected", rf"{REFUSES}|KeyError", rf"{_OF_ROWS_OR_TENSORS}.*?(?:{_AMONG})", frames=_BEFORE_WORK),
    Kind(
        "settings_rejected",
        rf"{REFUSES}|KeyError",
        rf"{_OF_ROWS_OR_TENSORS}.*?(?:{_NONE_KNOWN})",
        frames=_BEFORE_WORK,
    ),
    Kind(
        "settings_rejected",
        REFUSES,
        rf"{_OF_ROWS_OR_TENSORS}.*?(?:{_LEFT_OPEN})",
        parts=_OF_SETTINGS,
        frames=_STARTS,
    ),
    Kind(
        "settings_rejected",
        REFUSES,
        rf"{_OF_ROWS_OR_TENSORS}.*?(?:{_BOUND})",
        parts=_OF_SETTINGS,
        frames=r" in (?:__init__|__post_init__|_*(?:valid|verif|check|setup|init|get|from|make|create|build)\w*)\Z",
    ),
    Kind("settings_rejected", rf"{REFUSES}|KeyError", _VARIABLE_OPEN, frames=_BEFORE_WORK),
    # whatever is said: who is made of settings, or reads them, refuses what it was told
    Kind(
        "settings_rejected",
        r"(?:Value|NotImplemented|Assertion)Error",
        rf"{_OF_ROWS_OR_TENSORS}(?!AssertionError |[\w.()]+=)"
        r"(?!.*\b(?:internal|subclass\w*)\b|.*\bnot implemented\W*\Z)\S+ \S+ \S",
        parts=("program", "learner", "settings", "ray"),
        frames=r" in (?:__init__|\w*(?:config|cfg|args|setting|option|hparam)\w*)\Z",
    ),
)
