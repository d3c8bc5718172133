"""What a cluster shares is made once, whoever comes first and whatever gets lost."""

import pytest

from rmt_pipeline.exchange.secret import CLUSTER_PATH, SECRET_PATH, cluster_id, exchange_secret
from rmt_pipeline.protocol.errors import Conflict, Corruption, OutcomeUnknown
from rmt_pipeline.system import RandomIds, SystemClock
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.fake_keeper import FakeZooKeeper


@pytest.fixture
def zookeeper():
    return FakeZooKeeper(SystemClock())


def test_every_server_gets_the_same_secret(zookeeper):
    secrets = {exchange_secret(zookeeper.connect(), RandomIds()) for _ in range(3)}
    assert len(secrets) == 1
    assert len(secrets.pop()) == 64


def test_the_cluster_has_one_id_which_is_not_its_secret(zookeeper):
    ids = {cluster_id(zookeeper.connect(), RandomIds()) for _ in range(3)}
    assert len(ids) == 1
    assert ids != {exchange_secret(zookeeper.connect(), RandomIds())}


class Unlucky:
    """A keeper whose creates never get an answer; `lands` says whether they happen."""

    def __init__(self, keeper, *, lands: bool) -> None:
        self._keeper = keeper
        self._lands = lands

    def __getattr__(self, name: str):
        return getattr(self._keeper, name)

    def multi(self, ops):
        if self._lands:
            self._keeper.multi(ops)
        raise OutcomeUnknown("no answer")


def test_a_create_whose_answer_was_lost_counts_when_it_landed(zookeeper):
    keeper = zookeeper.connect()
    secret = exchange_secret(Unlucky(keeper, lands=True), RandomIds())
    assert secret == exchange_secret(keeper, RandomIds())


def test_creates_that_never_land_end_in_an_error_and_not_in_a_loop(zookeeper):
    with pytest.raises(Conflict, match="10 attempts"):
        exchange_secret(Unlucky(zookeeper.connect(), lands=False), RandomIds())


@pytest.mark.parametrize("data", [b"", b"\xff", b"typed by hand\n"])
def test_a_damaged_node_is_corruption_and_is_left_alone(zookeeper, data):
    keeper = zookeeper.connect()
    keeper.multi([Create("/rmt"), Create(SECRET_PATH, data)])
    with pytest.raises(Corruption, match=SECRET_PATH) as raised:
        exchange_secret(keeper, RandomIds())
    assert "typed" not in str(raised.value), "it is a secret"
    assert keeper.get(SECRET_PATH)[0] == data
    assert keeper.exists(CLUSTER_PATH) is None
