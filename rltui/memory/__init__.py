"""GPU memory before anything runs: for each role, each GPU and each moment, with what it is made of.

``estimate_training`` and ``estimate_engine`` take architecture, sharding, precision and lengths directly;
``estimate_layout`` takes a layout. docs/memory.md has the formulas, their sources and how far off they are.
"""

from rltui.memory.engine import estimate_engine as estimate_engine
from rltui.memory.layouts import estimate_layout as estimate_layout
from rltui.memory.settings import Adapter as Adapter
from rltui.memory.settings import EngineSettings as EngineSettings
from rltui.memory.settings import Sharding as Sharding
from rltui.memory.settings import States as States
from rltui.memory.settings import WeightSync as WeightSync
from rltui.memory.settings import Workload as Workload
from rltui.memory.training import estimate_training as estimate_training
