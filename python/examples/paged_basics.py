"""A request's life over pages. Run it: python3 python/examples/paged_basics.py"""

import numpy as np

import stemma

BLOCK = 16
cache = stemma.PagedCache([stemma.Group(capacity_blocks=64, block_tokens=BLOCK)])
scope = stemma.Scope("digest of the weights")
kv = np.zeros((64, BLOCK), np.uint32)  # The engine's memory: here a token's "KV" is the token.


def serve(prompt):
    with cache.lease(scope, prompt) as lease:  # Finds, holds and drafts blocks.
        for copy in lease.copies():
            kv[copy.target, : copy.tokens] = kv[copy.source, : copy.tokens]
        lease.copies_done()
        table = lease.block_table()
        for i in range(lease.committed, lease.length):  # Only what is not there yet.
            kv[table[i // BLOCK], i % BLOCK] = prompt[i]
        lease.commit(lease.length)  # Findable from now on.
        computed = [kv[table[i // BLOCK], i % BLOCK] for i in range(len(prompt))]
        assert computed == list(prompt)
        print(f"{lease.length} tokens, {lease.reused} of them reused")


prompt = np.full(100, 7, np.uint32)
serve(prompt)  # All of it is new.
serve(prompt)  # All but the last token is there.
prompt[70] = 8
serve(prompt)  # The same up to token 70.
