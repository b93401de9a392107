"""Which paths are read."""

import pytest

from latchguard.integrations.endpoints import ENDPOINTS, Endpoint, find_endpoint


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.suffix)
@pytest.mark.parametrize("prefix", ["", "/v1", "/openai/deployments/my-model"])
@pytest.mark.parametrize("end", ["", "/"])
def test_endpoint_is_found_behind_any_prefix(endpoint: Endpoint, prefix: str, end: str) -> None:
    """A gateway may serve an endpoint anywhere, with a slash at the end or not."""
    path = prefix + ("/models/m" if endpoint.suffix.startswith(":") else "") + endpoint.suffix.replace("*", "conv_1")
    assert find_endpoint(path + end) is endpoint


@pytest.mark.parametrize(
    "path",
    [
        "/v1/embeddings",
        "/v1/files",
        "/v1/chat/completions/chatcmpl-1",
        "/v1/mymessages",
        "/v1/responses/resp_1/cancel",
        "/v1/conversations/conv_1",
        "/v1/conversations/a/b/items",
        "/v1beta/models/m:embedContent",
        "/v1beta/generateContent",
        "",
    ],
)
def test_other_paths_are_no_endpoint(path: str) -> None:
    """Only the end of a path counts, and it must be whole."""
    assert find_endpoint(path) is None
