"""Every rendered object is one that the API server takes: no unknown field, no wrong type.

Method: kinds of Kubernetes by kubernetes-validate, strictly, for the oldest version that
deploy/k8s/README.md promises and the newest that it knows; custom kinds by the definitions that
their projects publish. fetch_schemas.sh brings both; exits with 77 where it could not.

usage: schemas_test.py KUBECTL CRDS_FOLDER BuiltInKindsTest|CustomKindsTest
"""

import copy
import pathlib
import sys
import unittest

try:
    import jsonschema
    import kubernetes_validate
    import yaml
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}; fetch_schemas.sh says why")
    sys.exit(77)

from rendered import K8S, render, render_all

KUBECTL, CRDS = sys.argv[1], pathlib.Path(sys.argv[2])
OBJECTS = [item for overlay in render_all(KUBECTL) for item in overlay.objects]
OBJECTS += render(KUBECTL, K8S.parent / "load")
OLDEST = "1.31"


def strict(schema):
    """The schema, refusing the fields that it does not name, which the API server would drop."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


def custom_schemas():
    """{(apiVersion, kind): schema}"""
    schemas = {}
    for path in CRDS.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # the API server's own
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def is_built_in(item):
    """Of Kubernetes itself: the Gateway API, with a domain of Kubernetes', is none of its kinds."""
    group = item["apiVersion"].rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith("gateway."))


class BuiltInKindsTest(unittest.TestCase):
    objects = [item for item in OBJECTS if is_built_in(item)]

    def check(self, item):
        """Raises jsonschema.ValidationError."""
        for version in (OLDEST, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(item, version, strict=True)

    def test_every_object_is_valid(self):
        self.assertTrue(self.objects)
        for item in self.objects:
            with self.subTest(kind=item["kind"]):
                self.check(item)

    def test_a_misspelt_field_is_refused(self):
        for kind, item in {item["kind"]: item for item in self.objects}.items():
            with self.subTest(kind):
                wrong = copy.deepcopy(item)
                wrong.get("spec", wrong)["replicsa"] = 2
                with self.assertRaises(jsonschema.ValidationError):
                    self.check(wrong)


class CustomKindsTest(BuiltInKindsTest):
    objects = [item for item in OBJECTS if not is_built_in(item)]
    schemas = custom_schemas()

    def check(self, item):
        jsonschema.Draft7Validator(self.schemas[item["apiVersion"], item["kind"]]).validate(item)


if __name__ == "__main__":
    if "CustomKindsTest" in sys.argv and not CRDS.exists():
        print("skipped: the definitions of custom kinds come as Go modules, and there is no Go")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
