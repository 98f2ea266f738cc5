"""Models that cannot be cached, or that decode one by one, say so and answer as ever."""

from concurrent.futures import ThreadPoolExecutor

from mlx_lm.models.cache import RotatingKVCache

from tests.trust.talk import answer, small_server, tokens_of

PROMPTS = [tokens_of(seed, 70 + seed) for seed in range(4)]


def card(server) -> dict:
    """Return the model as `/health` shows it."""
    return server.http.get("/health").json()["models"][0]


def test_a_model_whose_caches_cannot_be_stored_runs_uncached_and_says_why(folder_of, tmp_path, monkeypatch):
    """`/health` names the class of caches; a second request computes everything again, and says the same."""
    import mlx_lm.models.llama

    def make_cache(self):
        return [RotatingKVCache(256, keep=4) for _ in self.layers]

    monkeypatch.setattr(mlx_lm.models.llama.Model, "make_cache", make_cache, raising=False)
    with small_server(folder_of("llama"), tmp_path) as server:
        assert card(server)["uncached"] is None
        first, again = answer(server, PROMPTS[0]), answer(server, PROMPTS[0])
        assert "RotatingKVCache (keep=4" in card(server)["uncached"]
        assert 0 == server.http.get("/health").json()["cache"]["hot"]["blocks"]
    assert first == again
    assert 0 == again[1]


def test_a_model_that_decodes_one_by_one_says_why(folder_of, tmp_path):
    """Where a batch would change an answer, rows never share one: each answer is that of a run alone."""
    with small_server(folder_of("minimax_m3_vl"), tmp_path) as server:
        alone = [answer(server, prompt)[0] for prompt in PROMPTS]
        assert "attends by blocks" in card(server)["alone"]
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            assert alone == [text for text, _ in pool.map(lambda prompt: answer(server, prompt), PROMPTS)]


def test_a_model_like_any_other_has_nothing_to_say(folder_of, tmp_path):
    """A model whose caches can be stored and joined names no reason."""
    with small_server(folder_of("llama"), tmp_path) as server:
        answer(server, PROMPTS[0])
        assert (None, None) == (card(server)["uncached"], card(server)["alone"])
