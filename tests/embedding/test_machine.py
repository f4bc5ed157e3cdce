"""What is fast on a CPU: by hand, for CPUs that tell their caches and instructions, or do not."""

import pytest
import torch
from transformers import BertConfig, BertModel

from modeling_tmde import BagConfig, BagModel
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.machine import cpu_batch_tokens, has_fast_bf16


@pytest.fixture
def cpu(monkeypatch):
    """A function that sets what the CPU tells of itself, and the number of threads."""

    def describe(threads=1, **capabilities):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)

    return describe


def encoder(inner_width):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    return BertModel(BertConfig(vocab_size=40, intermediate_size=inner_width, **sizes))


@pytest.mark.parametrize(
    ("inner_width", "threads", "cache", "expected"),
    [
        # 1.5 x 2 MiB / (4 bytes x 1,536 numbers)
        (1536, 1, 2**21, 512),
        (1536, 2, 2**21, 1024),
        (768, 1, 2**21, 1024),
        (1536, 1, None, 256),  # 1 MiB is usual
        (12_288, 1, 2**20, 128),  # never fewer
    ],
)
def test_a_batch_fits_the_caches(inner_width, threads, cache, expected, cpu):
    cpu(threads, **({} if cache is None else {"l2_cache_size": cache}))
    assert cpu_batch_tokens(encoder(inner_width)) == expected


def test_a_bag_has_large_batches(cpu):
    cpu(l2_cache_size=2**18)
    assert cpu_batch_tokens(BagModel(BagConfig(vocab_size=40, d_model=32))) == 4096


def test_the_embedder_makes_such_batches(tokenizer, cpu):
    cpu(l2_cache_size=2**21)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = BertConfig(vocab_size=len(tokenizer), intermediate_size=1536, **sizes)
    embedder = DocumentEmbedder(BertModel(config), tokenizer)
    batches = []
    embedder.model.register_forward_hook(
        lambda model, arguments, options, output: batches.append(options["input_ids"].numel()),
        with_kwargs=True,
    )
    embedder.encode(["haus hund katze baum"] * 500)
    assert max(batches) <= 512
    assert sum(batches) > 2 * 512


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx2": True}, False),
        ({}, False),
    ],
)
def test_bfloat16_needs_instructions(capabilities, expected, cpu):
    cpu(**capabilities)
    assert has_fast_bf16(use_cpu=True) is expected
