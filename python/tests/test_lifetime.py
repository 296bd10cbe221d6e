"""Ends: closed caches, forgotten leases, fork(), interpreter shutdown, and what leaks."""

import gc
import os
import subprocess
import sys
import threading
import unittest
import warnings

import numpy as np

import stemma

SCOPE = stemma.Scope("weights")
PROMPT = np.arange(100, dtype=np.uint32)


def made(**options):
    return stemma.PagedCache([stemma.Group(capacity_blocks=64)], **options)


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Ends(unittest.TestCase):
    def test_a_closed_cache_refuses_every_call(self):
        cache = made()
        lease = cache.lease(SCOPE, PROMPT)
        cache.close()
        cache.close()
        self.assertTrue(cache.closed)
        for call in (
            lambda: cache.lease(SCOPE, PROMPT),
            lambda: cache.lookup(SCOPE, PROMPT),
            cache.stats,
            cache.dump,
            cache.contents,
            lambda: cache.reset(),
            lambda: cache.branch_points(SCOPE, PROMPT),
        ):
            with self.assertRaises(stemma.Closed):
                call()
        # A live lease stays valid, and keeps the rest alive.
        self.assertEqual(len(lease.block_table()), 7)
        lease.commit(100)
        lease.release()

    def test_a_released_lease_refuses_every_call(self):
        cache = made()
        lease = cache.lease(SCOPE, PROMPT)
        lease.release()
        self.assertTrue(lease.released)
        for call in (lease.block_table, lease.release, lease.copies, lambda: lease.commit(1), lambda: lease.length):
            with self.assertRaises(stemma.Closed):
                call()
        with lease:  # It has already ended.
            pass

    def test_a_forgotten_lease_ends_with_a_warning(self):
        cache = made()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            cache.lease(SCOPE, PROMPT)
            gc.collect()
        self.assertEqual([w.category for w in seen], [ResourceWarning])
        self.assertEqual(cache.stats().leases, 0)

    def test_an_exception_ends_the_lease(self):
        cache = made()
        with self.assertRaises(KeyError), cache.lease(SCOPE, PROMPT) as lease:
            lease.commit(32)
            raise KeyError
        self.assertEqual(cache.stats().leases, 0)
        self.assertEqual(cache.lookup(SCOPE, PROMPT).reused_tokens, 32)

    def test_a_cache_is_closed_while_other_threads_call_it(self):
        for _ in range(20):
            cache = made()
            refused = threading.Event()
            started = threading.Barrier(3)

            def work(cache=cache, started=started, refused=refused):
                started.wait()
                try:
                    while True:
                        with cache.lease(SCOPE, PROMPT) as lease:
                            lease.block_table()
                        cache.stats()
                except stemma.Closed:
                    refused.set()

            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            started.wait()
            cache.close()
            for thread in threads:
                thread.join()
            self.assertTrue(refused.is_set())

    def test_nothing_leaks(self):
        cache = made(event_capacity=16)

        def everything():
            with cache.lease(SCOPE, PROMPT.astype(np.int64)) as lease:
                lease.copies_done()
                lease.block_table()
                lease.commit(100)
                lease.release(fence=lambda: True)
            cache.stats()
            cache.events()
            cache.dump()
            for bad in ([-1], np.zeros(3), PROMPT.astype(np.int64) - 50):
                try:
                    cache.lease(SCOPE, bad)
                except (stemma.StemmaError, TypeError):
                    pass
            made().close()

        for _ in range(300):
            everything()
        gc.collect()
        before = resident_kib()
        for _ in range(2000):
            everything()
        gc.collect()
        self.assertLess(resident_kib() - before, 2048)

    def test_a_child_of_fork_is_told_so(self):
        cache = made()
        lease = cache.lease(SCOPE, PROMPT)
        closed = made()
        orphan = closed.lease(SCOPE, PROMPT)
        closed.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 1
            try:
                refused = 0
                for call in (
                    cache.stats,
                    lambda: cache.lease(SCOPE, PROMPT),
                    lease.block_table,
                    lambda: lease.length,
                    lease.release,
                    lambda: lease.__exit__(None, None, None),
                    orphan.release,
                    lambda: lease.fork(),
                ):
                    try:
                        call()
                    except stemma.Forked:
                        refused += 1
                del lease, orphan
                cache.close()
                gc.collect()
                own = made()  # The child's own cache works.
                with own.lease(SCOPE, PROMPT) as mine:
                    mine.commit(100)
                code = 0 if refused == 8 else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        lease.commit(100)
        lease.release()
        orphan.release()
        self.assertEqual(cache.lookup(SCOPE, PROMPT).reused_tokens, 99)

    def run_script(self, script):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_the_interpreter_ends_with_live_leases(self):
        begin = (
            "import numpy as np, stemma, sys, threading\n"
            "cache = stemma.PagedCache([stemma.Group(capacity_blocks=64)])\n"
            "scope = stemma.Scope('m')\n"
            "lease = cache.lease(scope, np.arange(50))\n"
        )
        for end in (
            "",
            "cycle = [lease, cache]; cycle.append(cycle)\n",
            "sys.modules['keep'] = lease\n",
            # They live longer than the names of our modules.
            "import builtins; builtins.kept = [lease, cache]; del lease, cache\n",
            "def f(): cache.stats()\n"
            "threads = [threading.Thread(target=f) for _ in range(2)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]; lease.release()\n",
            "import builtins; builtins.kept = cache; lease.release(); del lease, cache\n",
            "del cache\n",
            "lease.release(fence=lambda: False)\n",
            "cache.close()\n",
            "import atexit; atexit.register(lambda: lease.block_table())\n",
            "t = threading.Thread(target=lambda: [cache.stats() for _ in range(10**7)], daemon=True)\n"
            "t.start()\n",
            "sys.modules.clear()\n",
        ):
            with self.subTest(end=end):
                self.run_script(begin + end)


if __name__ == "__main__":
    unittest.main()
