"""PagedCache and leases, as an engine uses them."""

import threading
import unittest

import numpy as np

import stemma


def made(blocks=64, **options):
    return stemma.PagedCache([stemma.Group(capacity_blocks=blocks, block_tokens=16, block_bytes=64)], **options)


SCOPE = stemma.Scope("weights")


def tokens(count, start=0):
    return np.arange(start, start + count, dtype=np.uint32)


def fill(cache, prompt, scope=SCOPE):
    with cache.lease(scope, prompt) as lease:
        lease.copies_done()
        lease.commit(lease.length)
        return lease.block_table()


class Requests(unittest.TestCase):
    def test_a_prompt_that_was_committed_is_found_by_the_next(self):
        cache = made()
        first = fill(cache, tokens(100))
        with cache.lease(SCOPE, tokens(100)) as lease:
            self.assertEqual(lease.positions, (99, 99, 100, 112))
            self.assertEqual(lease.report.outcome, "full_hit")
            np.testing.assert_array_equal(lease.block_table()[:6], first[:6])
            (copy,) = lease.copies()
            self.assertEqual((copy.group, copy.source, copy.tokens), (0, first[6], 3))
            self.assertEqual(copy.target, lease.block_table()[6])
            lease.copies_done()

    def test_a_lease_reuses_up_to_the_first_other_token(self):
        cache = made()
        fill(cache, tokens(100))
        other = tokens(100)
        other[70] = 7
        self.assertEqual(cache.lookup(SCOPE, other).reused_tokens, 70)
        self.assertEqual(
            cache.lookup(SCOPE, other, options=stemma.LookupOptions(allow_copy=False)).reused_tokens, 64
        )
        self.assertEqual(cache.lookup(stemma.Scope("other"), other).reason, "unknown_scope")

    def test_tables_are_written_into_the_callers_array(self):
        cache = made()
        fill(cache, tokens(40))
        with cache.lease(SCOPE, tokens(40)) as lease:
            mine = np.zeros(8, np.int32)
            self.assertEqual(lease.block_table(out=mine, pad=-1), 3)
            np.testing.assert_array_equal(mine[:3], lease.block_table().astype(np.int32))
            self.assertTrue((mine[3:] == -1).all())
            with self.assertRaises(stemma.OutOfRange):
                lease.block_table(out=np.zeros(2, np.int32))
            for wrong in (np.zeros(8), np.zeros(8, np.int64), np.zeros((2, 4), np.int32), [0] * 8):
                with self.assertRaises(TypeError):
                    lease.block_table(out=wrong)
            frozen = np.zeros(8, np.int32)
            frozen.flags.writeable = False
            with self.assertRaises(TypeError):
                lease.block_table(out=frozen)

    def test_slots_follow_from_the_table(self):
        cache = made()
        with cache.lease(SCOPE, tokens(40)) as lease:
            table = lease.block_table().astype(np.int64)
            slots = lease.slot_mapping(10, 40)
            positions = np.arange(10, 40)
            np.testing.assert_array_equal(slots, table[positions // 16] * 16 + positions % 16)
            mine = np.empty(30, np.int64)
            self.assertIsNone(lease.slot_mapping(10, 40, out=mine))
            np.testing.assert_array_equal(mine, slots)
            with self.assertRaises(ValueError):
                lease.slot_mapping(10, 40, out=np.empty(29, np.int64))

    def test_a_lease_grows_forks_and_goes_back(self):
        cache = made()
        with cache.lease(SCOPE, tokens(20)) as lease:
            lease.commit(20)
            lease.extend(tokens(30, 20))
            self.assertEqual(len(lease.block_table()), 4)
            self.assertEqual(lease.commit(50).published, 2)
            with lease.fork() as fork:
                self.assertEqual(fork.committed, 50)
                fork.copies_done()
                fork.extend([900])
                fork.commit(51)
            lease.rewind(20)
            self.assertEqual(lease.committed, 20)
            lease.reserve(64)
            self.assertEqual(lease.capacity, 64)
        self.assertEqual(cache.lookup(SCOPE, [*range(50), 900, 1]).reused_tokens, 51)

    def test_what_does_not_fit_says_how_much_is_missing(self):
        cache = made(blocks=4)
        with self.assertRaises(stemma.OutOfBlocks) as never:
            cache.lease(SCOPE, tokens(100))
        self.assertTrue(never.exception.never_fits)
        self.assertEqual((never.exception.value, never.exception.group), (3, 0))
        self.assertIn("ask for fewer tokens", str(never.exception))
        with cache.lease(SCOPE, tokens(60)):
            with self.assertRaises(stemma.OutOfBlocks) as later:
                cache.lease(SCOPE, tokens(20, 500))
            self.assertFalse(later.exception.never_fits)
            self.assertIn("Release leases", str(later.exception))

    def test_options_reach_the_cache(self):
        cache = made(quotas={7: 1 << 30})
        fill(cache, tokens(64))
        with cache.lease(
            SCOPE,
            tokens(64),
            draft_tokens=48,
            lookup=stemma.LookupOptions(at_most=32),
            retain=stemma.Retain(
                priority=80,
                ttl_s=60,
                session=5,
                phase=stemma.Phase.ACTIVE,
                ranges=[stemma.PriorityRange(0, 16, 100)],
            ),
        ) as lease:
            self.assertEqual(lease.positions, (32, 32, 64, 48))
            self.assertEqual(lease.report.reason, "at_most")
        cache.end_session(5)
        with self.assertRaises(stemma.InvalidArgument):
            cache.lease(SCOPE, tokens(4), retain=stemma.Retain(priority=101))
        with self.assertRaises(stemma.InvalidArgument):
            cache.lease(SCOPE, tokens(4), draft_tokens=-1)
        with self.assertRaises(stemma.InvalidArgument):
            cache.lease(SCOPE, tokens(4), tenant=1 << 32)
        with self.assertRaises(stemma.InvalidArgument):
            made(policy="nonsense")

    def test_media_stand_for_themselves(self):
        cache = made()
        image = stemma.MediaItem(offset=4, length=8, digest=b"0123456789abcdef")
        with cache.lease(SCOPE, tokens(40), media=[image]) as lease:
            np.testing.assert_array_equal(lease.media_to_process(), [0])
            lease.commit(40)
        same = tokens(40)
        same[5] = 77  # Covered by the image, so it does not count.
        self.assertEqual(cache.lookup(SCOPE, same, media=[image]).reused_tokens, 39)
        other = stemma.MediaItem(offset=4, length=8, digest=b"0123456789abcdeX")
        self.assertEqual(cache.lookup(SCOPE, same, media=[other]).reused_tokens, 4)

    def test_windows_and_states_are_groups_too(self):
        cache = stemma.PagedCache(
            [
                stemma.Group(capacity_blocks=64),
                stemma.Group(
                    capacity_blocks=64, attention=stemma.Attention.WINDOW, window_tokens=31
                ),
                stemma.Group(capacity_blocks=8, attention=stemma.Attention.RECURRENT),
            ]
        )
        with cache.lease(SCOPE, tokens(64)) as lease:
            self.assertEqual(len(lease.block_table(1)), 4)
            with self.assertRaises(stemma.StemmaError):
                lease.block_table(2)
            with self.assertRaises(stemma.StemmaError):
                lease.block_table(99)
            slot = lease.draft_checkpoint(2)
            lease.commit(64)
            lease.commit_checkpoint(2, 64)
            self.assertEqual(lease.hold_checkpoint(2, 64), (64, slot))
            self.assertIsNone(lease.hold_checkpoint(2, 10))
        self.assertEqual(cache.lookup(SCOPE, tokens(80)).reused_tokens, 64)

    def test_logits_come_back_at_the_same_depth(self):
        cache = made(logits_bytes=1 << 16)
        with cache.lease(SCOPE, tokens(20)) as lease:
            lease.commit(20)
            lease.attach_logits(20, np.arange(5, dtype=np.float64))
            self.assertIsNone(lease.logits())
        with cache.lease(
            SCOPE, tokens(20), lookup=stemma.LookupOptions(want_logits=True)
        ) as lease:
            np.testing.assert_array_equal(lease.logits(), np.arange(5, dtype=np.float32))

    def test_a_fence_keeps_blocks_until_it_has_signalled(self):
        cache = made(blocks=4)
        over = []
        with cache.lease(SCOPE, tokens(60)) as lease:
            lease.commit(60)
            lease.release(fence=lambda: bool(over))
        with self.assertRaises(stemma.OutOfBlocks):
            cache.lease(SCOPE, tokens(60, 100))
        over.append(1)
        self.assertEqual(cache.poll(), 1)
        cache.lease(SCOPE, tokens(60, 100)).release()
        cache.lease(SCOPE, tokens(10)).abandon(fence=lambda: True)


class WholeCache(unittest.TestCase):
    def test_events_tell_what_is_stored_and_removed(self):
        cache = made(event_capacity=64)
        fill(cache, tokens(32))
        (stored,), after = cache.events()
        self.assertEqual((stored.kind, stored.group, stored.block_tokens), ("stored", 0, 16))
        np.testing.assert_array_equal(stored.words, tokens(32))
        self.assertEqual([len(k) for k in stored.keys], [32, 32])
        self.assertEqual(cache.event_dump()[0][0].keys, stored.keys)
        cache.evict(1)
        (removed,), _ = cache.events(after)
        self.assertEqual((removed.kind, removed.keys), ("removed", stored.keys[1:]))

    def test_a_dump_is_loaded_by_an_equal_cache(self):
        cache = made()
        table = fill(cache, tokens(64))
        other = made()
        other.load(cache.dump())
        with other.lease(SCOPE, tokens(65)) as lease:
            np.testing.assert_array_equal(lease.block_table()[:4], table)
        with self.assertRaises(stemma.StemmaError):
            made().load(b"no dump at all")
        with self.assertRaises(stemma.StemmaError):
            other.load(cache.dump())  # It is not empty.

    def test_forgetting(self):
        cache = made()
        fill(cache, tokens(64))
        self.assertEqual(cache.truncate(SCOPE, tokens(64), 32), 2)
        self.assertEqual(cache.lookup(SCOPE, tokens(64)).reused_tokens, 32)
        self.assertEqual(cache.drop_scope(SCOPE), 2)
        fill(cache, tokens(64))
        with cache.lease(SCOPE, tokens(64)):
            with self.assertRaises(stemma.Busy):
                cache.reset()
            cache.reset(defer=True)
        self.assertEqual(cache.contents(), [])

    def test_pins_hold_and_expire(self):
        cache = made(blocks=8)
        fill(cache, tokens(64))
        pin = cache.pin(SCOPE, tokens(64), ttl_s=3600)
        self.assertEqual(pin.pinned_tokens, 64)
        self.assertEqual(cache.evict(8), 0)
        self.assertTrue(cache.unpin(pin))
        self.assertFalse(cache.unpin(pin))
        self.assertEqual(cache.evict(8), 4)

    def test_statistics_add_up(self):
        cache = made()
        fill(cache, tokens(64))
        fill(cache, tokens(64))
        stats = cache.stats()
        self.assertEqual(stats.total.lookups, 2)
        self.assertEqual(stats.total.outcomes["full_hit"], 1)
        self.assertEqual(stats.total.reused_tokens, 63)
        (group,) = stats.groups
        self.assertEqual(group.free_blocks + group.cached_blocks + group.draft_blocks, 64)
        self.assertEqual(sum(stats.match_tokens), 2)
        cache.check_invariants()

    def test_branches_and_tenants(self):
        cache = made(quotas={3: 1 << 20})
        fill(cache, tokens(64))
        fill(cache, np.concatenate([tokens(32), tokens(32, 500)]))
        np.testing.assert_array_equal(cache.branch_points(SCOPE, tokens(64)), [32])
        self.assertEqual(cache.tenant_of(SCOPE), 0)
        self.assertIsNone(cache.tenant_of(stemma.Scope("none")))
        self.assertEqual(cache.tenant_bytes(3), 0)
        cache.set_quota(3, 5)
        with self.assertRaises(stemma.InvalidArgument):
            cache.set_quota(4, 5)

    def test_scopes_are_values(self):
        scope = stemma.Scope("m", adapters=[stemma.Adapter("a", 1, 0.5)], tenant_salt=b"\0\1\2")
        self.assertEqual(scope, stemma.Scope.from_digest(scope.digest))
        self.assertNotEqual(scope, stemma.Scope("m"))
        self.assertEqual(len({scope, stemma.Scope.from_digest(scope.digest)}), 1)
        with self.assertRaises(stemma.InvalidArgument):
            stemma.Scope("")
        with self.assertRaises(ValueError):
            stemma.Scope.from_digest(b"short")

    def test_threads_share_a_cache(self):
        cache = made(blocks=512)
        wrong = []

        def work(seed):
            random = np.random.default_rng(seed)
            for _ in range(200):
                prompt = tokens(int(random.integers(1, 60)), int(random.integers(0, 4)) * 100)
                with cache.lease(SCOPE, prompt) as lease:
                    if len(lease.block_table()) != -(-len(prompt) // 16):
                        wrong.append(seed)
                    lease.copies_done()
                    lease.commit(lease.length)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(cache.stats().total.lookups, 800)
        cache.check_invariants()


if __name__ == "__main__":
    unittest.main()
