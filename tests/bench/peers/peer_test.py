"""Goal: peers time what they say: batches hold each sequence once, and whole passes are run.
Method: batches of made-up sequences, and lanes that only count."""

import threading
import time
import unittest

import peer

SEQUENCES = [[1] * n for n in (5, 90, 17, 40, 3, 8, 60, 2)]


def lengths(batches):
    return [sorted(mask.sum(axis=1).tolist()) for _, mask in batches]


class BatchesTest(unittest.TestCase):
    def test_groups_come_in_order_and_are_padded_to_their_longest(self):
        batches = peer.batches_of(SEQUENCES, "groups:3")
        self.assertEqual([ids.shape for ids, _ in batches], [(3, 90), (3, 40), (2, 60)])
        self.assertEqual(lengths(batches), [[5, 17, 90], [3, 8, 40], [2, 60]])

    def test_sorted_batches_hold_at_most_so_many_padded_tokens(self):
        batches = peer.batches_of(SEQUENCES, "sorted:64")
        self.assertEqual(sorted(sum(lengths(batches), [])), sorted(map(len, SEQUENCES)))
        self.assertEqual(lengths(batches), [[2, 3, 5, 8], [17], [40], [60], [90]])
        for ids, _ in batches:
            self.assertTrue(ids.size <= 64 or len(ids) == 1)

    def test_an_unknown_batching_is_refused(self):
        with self.assertRaises(ValueError):
            peer.batches_of(SEQUENCES, "random:3")


class PassesTest(unittest.TestCase):
    def test_all_lanes_together_run_whole_passes(self):
        batches = peer.batches_of(SEQUENCES, "groups:3")
        seen, lock = [], threading.Lock()

        def lane(ids, _):
            time.sleep(0.001)
            with lock:
                seen.append(ids.shape)

        self.assertGreater(peer.run_passes([lane, lane], batches, 0.02), 0)
        self.assertEqual(len(seen) % len(batches), 0)
        for batch in batches:
            self.assertEqual(seen.count(batch[0].shape), len(seen) // len(batches))

    def test_only_real_tokens_count(self):
        batches = [peer.pad([[1] * 10, [1] * 90])]
        rate = peer.run_passes([lambda *_: time.sleep(0.05)], batches, 0)
        self.assertLess(rate, 100 / 0.05)
        self.assertGreater(rate, 100 / 0.5)


if __name__ == "__main__":
    unittest.main()
