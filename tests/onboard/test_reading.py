"""What a machine is told to be whose shell does not answer as one."""

from pathlib import Path
from unittest.mock import patch

import pytest

from llmgw_core.errors import LlmgwError
from llmgw_core.onboard.reading import look_at_machine
from llmgw_core.onboard.request import Login, NodeRequest
from llmgw_core.onboard.ssh import Session
from llmgw_core.provision.commands import Ended

REQUEST = NodeRequest(node="n1", login=Login(address="h"), server="https://c")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Ended(None, "root=yes\n", ""), "h lets us in, and did not answer within 120 s"),
        (Ended(142, 'Please login as the user "ubuntu"\n', ""), 'as the user "ubuntu"; is it another --ssh-user?'),
    ],
)
def test_why_a_machine_does_not_answer(ended: Ended, said: str) -> None:
    session = Session(REQUEST.login, Path("known"), (), "/p")
    with patch.object(Session, "run", return_value=ended), pytest.raises(LlmgwError) as caught:
        look_at_machine(session, REQUEST, b"root")
    assert said in str(caught.value)
