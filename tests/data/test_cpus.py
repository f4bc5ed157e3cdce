"""The number of CPUs to work with, also on systems that don't say what a process may use."""

import os

import pytest

from tmde.data.cpus import usable_cpus


def test_a_process_uses_the_cpus_that_it_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert usable_cpus() == 2


@pytest.mark.parametrize(("counted", "expected"), [(6, 6), (None, 1)])
def test_macos_and_windows_use_all_cpus(counted, expected, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert usable_cpus() == expected
