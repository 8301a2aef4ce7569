"""Distances approximated by a network, from an MDP or from recorded transitions."""

from bisimetric._optional import import_optional

for _package in ("jax", "optax", "safetensors"):
    import_optional(_package, "learned", "learn")

from bisimetric.learned import castro2020
from bisimetric.learned._fit import FitResult, fit
from bisimetric.learned._mico import PairTDConfig, mico, reduced_mico
from bisimetric.learned.api import bisimulation, initialise, on_policy
from bisimetric.learned.config import PairQConfig, RunOptions
from bisimetric.learned.defaults import choose_config
from bisimetric.learned.evaluation import Quality
from bisimetric.learned.functional import TransitionBatch
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.model_based import ModelBasedConfig
from bisimetric.learned.networks.encoders import ConvEncoder
from bisimetric.learned.networks.metric_networks import FreeNetwork, MetricNetwork
from bisimetric.learned.networks.mico_network import MicoNetwork
from bisimetric.learned.networks.reward_sequence_network import RewardSequenceNetwork
from bisimetric.learned.pivot_index import Neighbours, PivotIndex
from bisimetric.learned.reward_sequence import RewardSequenceConfig
from bisimetric.learned.source_builders import source_from_mdp, source_from_transitions
from bisimetric.learned.sources import FeatureScaling
from bisimetric.learned.transition_model import source_from_model

__all__ = [
    "ConvEncoder",
    "FeatureScaling",
    "FitResult",
    "FreeNetwork",
    "LearnedDistance",
    "MetricNetwork",
    "MicoNetwork",
    "ModelBasedConfig",
    "Neighbours",
    "PairQConfig",
    "PairTDConfig",
    "PivotIndex",
    "Quality",
    "RewardSequenceConfig",
    "RewardSequenceNetwork",
    "RunOptions",
    "TransitionBatch",
    "bisimulation",
    "castro2020",
    "choose_config",
    "fit",
    "initialise",
    "mico",
    "on_policy",
    "reduced_mico",
    "source_from_mdp",
    "source_from_model",
    "source_from_transitions",
]
