"""Data classes whose methods are made with their first instance (`rmt_pipeline.values`)."""

import copy
import pickle
import threading
from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from rmt_pipeline.values import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """Is made anew by unpickling alone."""

    number: int


@dataclass(frozen=True, slots=True)
class Base:
    name: str


@dataclass(frozen=True, slots=True)
class Derived(Base):
    numbers: tuple[int, ...] = ()
    texts: list[str] = field(default_factory=list)


def test_they_are_data_classes_like_others():
    one = Derived("a", (1, 2))
    assert one == Derived("a", (1, 2))
    assert one != replace(one, name="b")
    assert [each.name for each in fields(one)] == ["name", "numbers", "texts"]
    assert repr(one) == "Derived(name='a', numbers=(1, 2), texts=[])"
    assert one.texts is not Derived("a").texts
    assert hash(Base("a")) == hash(Base("a"))
    with pytest.raises(FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    match one:
        case Derived(name, numbers):
            assert (name, numbers) == ("a", (1, 2))
        case _:
            pytest.fail("it matches by place")


def test_one_that_comes_from_another_process_has_its_methods():
    data = pickle.dumps(Sent(5))
    assert pickle.loads(data) == Sent(5) == copy.copy(Sent(5))


def test_a_class_whose_first_instance_is_not_made_by_calling_it_has_them_too():
    @dataclass(frozen=True)
    class Plain:
        number: int = 7

    made = Plain.__new__(Plain)
    assert [each.name for each in fields(made)] == ["number"]


def test_many_threads_may_make_the_first_one():
    for _ in range(20):

        @dataclass(frozen=True, slots=True)
        class Raced:
            number: int
            more: list[int] = field(default_factory=list)

        begin, made = threading.Barrier(8), []

        def make(of=Raced, begin=begin, made=made):
            begin.wait()
            made.append(of(1))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Raced(1)] * 8
