"""The runbook says what is so: its metrics, log lines, reasons, flags and links exist, and every
alert has its entry.

Method: reads deploy/runbook.md beside the sources that it speaks of.
"""

import pathlib
import re
import unittest

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RUNBOOK = SOURCE / "deploy/runbook.md"

text = RUNBOOK.read_text()
# What is quoted may go on in the next line.
quoted = re.findall(r"`([^`]+)`", re.sub(r"\n *", " ", text))


def sources(*patterns):
    return "\n".join(path.read_text() for pattern in patterns
                     for path in sorted(SOURCE.glob(pattern)))


server = sources("server/**/*.h", "server/**/*.cc", "engine/**/*.cc")
# String literals that the compiler puts together are one text here, too.
joined = re.sub(r'"\s*"', "", server)


def anchor(heading):
    """Of a heading, as the pages of code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", path.read_text(), re.M)}


class RunbookTest(unittest.TestCase):
    def test_every_metric_is_exported(self):
        names = set(re.findall(r"\b(?:encoderd|process)_[a-z_]+\b", " ".join(quoted)))
        self.assertGreater(len(names), 15)
        for name in names:
            with self.subTest(name):
                self.assertTrue(f'"{name}"' in server, "no such metric in server/")

    def test_every_log_line_is_written(self):
        lines = [quote for quote in quoted if re.match(r"[A-Z][a-z-]+\b.*[. ]", quote)]
        self.assertGreater(len(lines), 10)
        for line in lines:
            with self.subTest(line):
                self.assertTrue(re.split(r" [a-z_]+=", line)[0] in joined, "nothing logs this")

    def test_every_reason_and_code_is_known(self):
        known = server + sources("proto/**/*.proto")
        names = [quote for quote in quoted if re.fullmatch(r"[A-Z][A-Z0-9_]+", quote)]
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                self.assertTrue(re.search(rf"\b{name}\b", known), "no such reason or code")

    def test_every_flag_exists(self):
        flags = set(re.findall(r"--([a-z_]+)", text)) - {"help"}  # which is the library's own
        self.assertGreater(len(flags), 10)
        defined = sources("server/*.cc", "deploy/client/*.cc", "deploy/client/load/*.cc")
        for flag in flags:
            with self.subTest(flag):
                self.assertTrue(re.search(rf"ABSL_FLAG\(\s*[\w:]+,\s*{flag},", defined),
                                "no such flag of encoderd or encoderctl")

    def test_every_link_leads_somewhere(self):
        links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text)
        self.assertGreater(len(links), 10)
        for path, heading in links:
            with self.subTest(path=path, heading=heading):
                target = (RUNBOOK.parent / path).resolve() if path else RUNBOOK
                self.assertTrue(target.exists())
                if heading:
                    self.assertIn(heading, anchors(target))

    def test_every_alert_has_its_entry(self):
        rules = yaml.safe_load((SOURCE / "deploy/prometheus/rules.yaml").read_text())
        alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]
                  if "alert" in rule}
        words = {re.sub(r"(?<=.)([A-Z])", lambda match: " " + match[1].lower(), alert)
                 for alert in alerts}
        entries = set(re.findall(r"^### (.+)$", text, re.M))
        self.assertEqual(entries, words)


if __name__ == "__main__":
    unittest.main()
