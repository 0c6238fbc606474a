"""The tree of known blocks: what it finds by token ids alone."""

import pytest

from engine.cache.tree import Block, PrefixTree, packed, root_key

ROOT = root_key(b"model", "")


@pytest.fixture
def tree() -> PrefixTree:
    return PrefixTree(4)


@pytest.mark.parametrize("last", [3, 4])
def test_of_equally_long_matches_the_preferred_one_is_found(tree: PrefixTree, last: int) -> None:
    blocks = {end: Block(ROOT, packed([0, 1, 2, end])) for end in (3, 4)}
    for block in blocks.values():
        tree.add(block)
    match = tree.match(ROOT, packed([0, 1, 2, 9]), preferred={blocks[last].key})
    assert (match.path, match.n_tokens) == ([blocks[last]], 3)
    assert match.other == packed([last])


def test_a_longer_match_goes_before_a_preferred_one(tree: PrefixTree) -> None:
    longer, preferred = Block(ROOT, packed([0, 1, 2, 3])), Block(ROOT, packed([0, 1, 8, 9]))
    tree.add(longer)
    tree.add(preferred)
    match = tree.match(ROOT, packed([0, 1, 2, 5]), preferred={preferred.key})
    assert (match.path, match.n_tokens) == ([longer], 3)


def test_a_blocks_key_depends_on_all_ids_before_it() -> None:
    assert Block(ROOT, packed([1])).key == Block(ROOT, packed([1])).key
    other_root = root_key(b"model", "another")
    assert len({Block(root, packed([i])).key for root in (ROOT, other_root) for i in (1, 2)}) == 4
