"""How commands report truncated texts: by a number of their own, without the embedder's warning."""

import logging

from tmde.embedding.document_embedder import logger
from tmde.embedding.opening import without_truncation_warnings


def test_warnings_come_back_after_nested_blocks(caplog):
    caplog.set_level(logging.WARNING, logger=logger.name)
    with without_truncation_warnings():
        with without_truncation_warnings():
            logger.warning("in the inner block")
        logger.warning("in the outer block")
    logger.warning("after both")
    assert caplog.messages == ["after both"]
