"""Goal: deploy/sizing.py tells a p99 that a queue really has, and a replica too many rather than
one too few.
Method: values known from theory, and a simulated queue with the lengths of the load generator's
mix of passages, whose seed is fixed.
"""
import heapq
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))
sys.dont_write_bytecode = True
import sizing  # noqa: E402

CALLS = 100_000


def simulated_p99(rate, workers, draw, rng):
    free_at = [0.0] * workers
    now, times = 0.0, []
    for _ in range(CALLS):
        now += rng.expovariate(rate)
        end = max(now, heapq.heappop(free_at)) + draw(rng)
        heapq.heappush(free_at, end)
        times.append(end - now)
    return sorted(times)[CALLS * 99 // 100]


class SizingTest(unittest.TestCase):
    def test_waiting_share_is_erlangs(self):
        for offered in (0.1, 0.5, 0.9):
            self.assertAlmostEqual(sizing.waiting_share(1, offered), offered)
        self.assertAlmostEqual(sizing.waiting_share(2, 1.0), 1 / 3)
        self.assertAlmostEqual(sizing.waiting_share(3, 2.0), 4 / 9)

    def test_p99_of_one_worker_with_exponential_times_is_exact(self):
        # M/M/1: P(wait > t) = rho * exp(-(mu - lambda) t).
        wait = sizing.p99(0.8, 1, call=1, longest=0, cv2=1)
        self.assertAlmostEqual(0.8 * math.exp(-(1 - 0.8) * wait), 0.01)

    def test_p99_is_that_of_a_queue(self):
        def passage(rng):  # about 177 tokens in the mean, at most 384; times in seconds
            return min(max(rng.gammavariate(5, 36), 16), 384) / 180 * 0.02

        rng = random.Random(1)
        sample = [passage(rng) for _ in range(50_000)]
        mean = sum(sample) / len(sample)
        cv2 = sum((time - mean) ** 2 for time in sample) / len(sample) / mean**2
        for workers in (1, 2, 4, 8):
            for busy in (0.5, 0.7, 0.9):
                rate = busy * workers / mean
                simulated = simulated_p99(rate, workers, passage, rng)
                told = sizing.p99(rate, workers, mean, max(sample), cv2)
                with self.subTest(workers=workers, busy=busy):
                    self.assertGreaterEqual(told, 0.9 * simulated)
                    self.assertLessEqual(told, 1.35 * simulated)

    def test_replicas_are_the_fewest_that_keep_the_bound(self):
        replica = {"workers": 2, "call": 0.02, "longest": 0.05, "cv2": 0.5}
        for rate in (10, 300, 2000):
            found = sizing.replicas_for(rate, 0.2, **replica)
            self.assertLessEqual(sizing.p99(rate / found, **replica), 0.2)
            if found > 1:
                self.assertGreater(sizing.p99(rate / (found - 1), **replica), 0.2)
        self.assertIsNone(sizing.replicas_for(1, 0.04, **replica))
        self.assertEqual(sizing.p99(101, **replica), math.inf)


if __name__ == "__main__":
    unittest.main()
