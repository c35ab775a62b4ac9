"""How they say it: Trainers, scalers and checkpoint readers."""

from rltui.diagnose import learner_judges
from rltui.diagnose.signs import Sign, signs

SIGNS = (
    *signs(
        "ds_batch_assert",
        "train_batch_size is not equal to",
        "check batch related parameters",
        (
            "train_batch_size is not equal to",
            r"(?<!\d)(?P<batch>\d{1,9}) ?!= ?(?P<micro>\d+) ?\* ?(?P<steps>\d+) ?\* ?(?P<world>\d+)",
        ),
        (
            "has to be greater than 0",
            r"(?i)(?:micro batch size per gpu|train batch size|gradient accumulation steps): \d+ has to be greater "
            r"than 0",
        ),
        (
            "only support equal chunk",
            r"only support equal chunk\. Got size of DataProto (?P<batch>\d+) and chunk (?P<parts>\d+)",
        ),
        ("train_micro_batch_size_per_gpu", r"(?i)either train_batch_size or train_micro_batch_size_per_gpu needs"),
        (
            "divisible",
            r"(?i)AssertionError.{0,40}(?:real_)?train_batch_size.{0,120}divisible|(?:global|train|mini|micro|"
            r"effective|generation|rollout)[ _]batch[ _]size.{0,160}(?:must be|should be|is not|not) (?:evenly )?"
            r"divisible by",
        ),
        confidence=0.9,
        unless=r"^\s*(?:assert|f['\"]|if) ",
    ),
    *signs(
        "nan_or_loss_scale",
        ("loss scale already at minimum", ""),
        ("loss scale", r"(?i)minimum loss scale reached|loss scale (?:is|has) (?:reached|below) (?:the )?min"),
        ("loss is nan", r"(?i)loss is nan"),
        ("found", r"(?i)found (?:NaN|inf) in (?:local )?(?:grad|forward|loss)|found NaN in local", "nan inf"),
        ("norm is", r"(?i)grad(?:ient)?[_ ]?norm is (?:not finite|nan|inf)\b", "nan inf finite"),
        ("loss", r"(?i)loss (?:is|became|has become|diverged to) (?:nan|inf|not finite)\b", "nan inf finite"),
        ("finite", r"(?i)(?:loss|grad(?:ient)?[_ ]?norm) is not finite|non-?finite (?:loss|grad)", "finite nonfinite"),
        ("returned nan values", r"returned nan values in its \d+th output"),
        ("nan", r"probability tensor contains either `?inf`?, `?nan`?"),
        confidence=0.85,
        unless=r"(?i)if |\?|skip_nan|check_for_nan",
    ),
    Sign(
        cause="nan_or_loss_scale",
        anchor="loss scale",
        pattern=r"(?i)loss scale: (?P<scale>[\d.e+-]+), reducing to|reducing loss scale (?:to|from) "
        r"(?P<scale2>[\d.e+-]+)",
        check=learner_judges.read_loss_scale,
    ),
    Sign(
        cause="ckpt_broken",
        anchor="must match the size of tensor b",
        check=learner_judges.read_size_mismatch,
    ),
    *signs(
        "ckpt_broken",
        ("pytorchstreamreader failed", ""),
        ("failed finding central directory", ""),
        ("unexpected eof", r"(?i)unexpected EOF, expected \d+ more bytes"),
        (
            "safetensor",
            r"(?i)SafetensorError: Error while deserializing|safetensors?.{0,80}(?:HeaderTooLarge|HeaderTooSmall|"
            r"InvalidHeader\w*|MetadataIncompleteBuffer|incomplete metadata)",
            "safetensor safetensors safetensorerror",
        ),
        ("deserializing header", ""),
        ("size mismatch for", r"size mismatch for \S+: copying a param"),
        ("loading state_dict", r"Error\(s\) in loading state_dict"),
        (
            "unpickling",
            r"UnpicklingError: (?:invalid load key|pickle data was truncated|unpickling stack underflow)",
            "unpicklingerror",
        ),
        ("ran out of input", r"EOFError: Ran out of input"),
        ("storage has wrong", r"storage has wrong (?:byte )?size"),
        ("invalid magic number", ""),
        ("state_dict_metadata[fqn]", ""),
        ("checkpointingexception", ""),
        ("unable to load weights from pytorch checkpoint file", ""),
        ("find a valid checkpoint at", ""),
        (
            "no such file or directory",
            r"FileNotFoundError: .{0,40}No such file or directory: ['\"].{0,300}(?:checkpoint|ckpt|global_?step|"
            r"/step)[-_]?"
            r"\d*/.{0,200}\.(?:pt|pth|bin|safetensors|distcp|json)",
        ),
        ("missing key in checkpoint state_dict", ""),
        ("checkpoint file is corrupt", ""),
        ("did not match the model", r"(?i)checkpoint (?:module )?state did not match the model"),
        ("size mismatch between saved", ""),
        ("archive is corrupted", ""),
        (
            "checkpoint",
            r"(?i)checkpoint.{0,120}(?:is (?:corrupt|incomplete|broken|damaged|truncated)|corrupted)|corrupt(?:ed)? "
            r"checkpoint",
        ),
        (
            "checkpoint",
            r"(?i)checkpoint.{0,80}used a DP world size of \d+ but the current|world size .{0,80}does not "
            r"match.{0,60}checkpoint",
        ),
        ("unable to find latest file", ""),
        ("file might be corrupted", ""),
        confidence=0.9,
        unless=r"^\s*except |DataLoader worker|(?i:corrupt\w*\?|no corrupt)",
    ),
)
