import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job, parse_job

JOB = """
name: a
kubernetes:
  image: registry/ads:3
  volumes:
  - {mount: /data, claim: criteo, read_only: true}
  env: [STAGE=test]
  node_selector: [disk=ssd]
"""


def test_what_a_job_says_of_its_pods_survives_a_job_file():
    job = parse_job(JOB)
    assert job.kubernetes.volumes[0].claim == "criteo"
    assert parse_job(dump_job(job)) == job


@for_each(
    ("volume", "told"),
    [
        ("{claim: c}", r"volumes\[0\] needs mount; its keys: mount, claim"),
        ("{mount: /d}", r"volumes\[0\]: a volume is one of claim.*got none"),
        ("{mount: /d, claim: c, secret: s}", "got claim and secret"),
        ("{mount: d, claim: c}", "absolute path, got 'd'"),
        ("{mount: /d, clam: c}", "did you mean claim"),
    ],
)
def test_a_volume_that_cannot_be_is_refused_by_its_place(volume, told):
    with pytest.raises(InvalidValueError, match=told):
        parse_job(f"name: a\nkubernetes:\n  volumes:\n  - {volume}\n")


def test_two_volumes_at_one_path_are_refused():
    volumes = "[{mount: /d, claim: a}, {mount: /d/, claim: b}]"
    with pytest.raises(InvalidValueError, match="several at /d"):
        parse_job(f"name: a\nkubernetes: {{volumes: {volumes}}}\n")


def test_a_toleration_that_is_none_is_refused_when_the_job_file_is_read(error_words):
    with error_words(InvalidValueError):
        parse_job("name: a\nkubernetes:\n  tolerations: ['gpu:Never']\n")
