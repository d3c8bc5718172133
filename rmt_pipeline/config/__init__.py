"""The configuration file: which servers there are, and where ZooKeeper, Spark and Dagster are.

One TOML file describes a deployment, and every host may have the same one. Keys are checked
strictly: an unknown key is an error that names the file, the key and the nearest key that exists.
Without a file, the embedded default is two servers on this machine, below `./rmt-data`.
"""

from rmt_pipeline.config.keys import Address
from rmt_pipeline.config.load import RenewedConfig, load_config
from rmt_pipeline.config.sections import (
    ClusterConfig,
    Config,
    FilesConfig,
    ServerConfig,
    SparkConfig,
    TlsConfig,
    TlsFiles,
    ZooKeeperConfig,
    expand,
)

__all__ = [
    "Address",
    "ClusterConfig",
    "Config",
    "FilesConfig",
    "RenewedConfig",
    "ServerConfig",
    "SparkConfig",
    "TlsConfig",
    "TlsFiles",
    "ZooKeeperConfig",
    "expand",
    "load_config",
]
