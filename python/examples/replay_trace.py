"""Which policy and how much memory: python3 python/examples/replay_trace.py TRACE.jsonl[.zst]"""

import sys

import stemma

rows = stemma.replay(sys.argv[1], policies=["lru", "adaptive"], capacities=["5%", "10%"])
for row in rows:  # pandas.DataFrame(rows) makes a table of them.
    print(f"{row['policy']:8} {row['capacity_blocks']:8} blocks: {row['hit_ratio']:.1%}")
