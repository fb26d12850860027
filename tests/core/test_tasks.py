"""How outputs become answers."""

from __future__ import annotations

import numpy as np
import pytest

from onbudget.core.errors import BundleError, RunFailed
from onbudget.core.metadata import Metadata
from onbudget.core.tasks import Classify, MultiLabel, Tensors, sigmoid, softmax, task_of

LABELS = ("cat", "dog", "hen")


def test_softmax_survives_huge_logits() -> None:
    """Logits in the thousands give probabilities and not NaN."""
    rows = softmax(np.array([[1000.0, 1001.0, 0.0], [-1e4, -1e4, -1e4]], np.float32))
    assert np.allclose(rows.sum(axis=1), 1)
    assert np.allclose(rows[0, :2], [0.26894142, 0.73105858])
    assert np.allclose(rows[1], 1 / 3)


def test_sigmoid_survives_huge_logits() -> None:
    """Both ends saturate without overflow."""
    with np.errstate(over="raise"):
        assert np.allclose(sigmoid(np.array([-1e4, 0.0, 1e4])), [0, 0.5, 1])


def test_classify_names_the_best_label() -> None:
    """Each row gets its own label and the probability of that label; top lists the best first."""
    rows = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]], np.float32)
    first, second = Classify("p", LABELS).finish([rows], [0, 2])
    assert first == {"label": "dog", "confidence": pytest.approx(0.7)}
    assert second == {
        "label": "cat",
        "confidence": 0.5,
        "top": [{"label": "cat", "confidence": 0.5}, {"label": "hen", "confidence": pytest.approx(0.3)}],
    }


def test_a_top_larger_than_the_labels_lists_them_all() -> None:
    """Asking for more classes than there are is no error."""
    (answer,) = Classify("p", LABELS).finish([np.array([[0.1, 0.7, 0.2]])], [99])
    assert isinstance(answer, dict)
    assert [t["label"] for t in answer["top"]] == ["dog", "hen", "cat"]


@pytest.mark.parametrize("task", [Classify("p", LABELS), MultiLabel("p", LABELS)], ids=["classify", "multilabel"])
def test_nan_is_one_rows_own_failure(task: Classify | MultiLabel) -> None:
    """A row that the model spoilt is a RunFailed in its place; its neighbours keep their answers."""
    rows = np.array([[0.1, 0.7, 0.2], [np.nan, 0.2, 0.3], [0.9, 0.05, 0.05]], np.float32)
    good, bad, other = task.finish([rows], [0, 0, 0])
    assert isinstance(good, dict)
    assert isinstance(bad, RunFailed)
    assert isinstance(other, dict)


def test_multilabel_lists_what_is_at_least_half() -> None:
    """Labels at or above one half, best first; top overrides."""
    rows = np.array([[0.5, 0.9, 0.1]] * 2)
    answers = MultiLabel("p", LABELS).finish([rows], [0, 3])
    assert [[e["label"] for e in a["labels"]] for a in answers if isinstance(a, dict)] == [
        ["dog", "cat"],
        ["dog", "cat", "hen"],
    ]


def test_tensors_gives_every_output_a_row() -> None:
    """Each item gets its own row of each output; infinities can't be JSON."""
    a, b = Tensors(("y", "z")).finish([np.array([[1, 2], [3, 4]]), np.array([0.5, np.inf])], [0, 0])
    assert a == {"y": [1, 2], "z": 0.5}
    assert isinstance(b, RunFailed)
    assert "'z'" in str(b)


def test_labels_must_fit_the_output() -> None:
    """A thousand labels for 1001 columns are refused at load, with both numbers."""
    metadata = Metadata(task="classify", labels=LABELS, output="probabilities")
    with pytest.raises(BundleError, match="4 columns but the bundle has 3 labels"):
        task_of(metadata, {"probabilities": (None, 4)})
    with pytest.raises(BundleError, match="reads output 'probabilities', but the model has logits"):
        task_of(metadata, {"logits": (None, 3)})
    assert isinstance(task_of(metadata, {"probabilities": (None, 3)}), Classify)
    assert task_of(None, {"y": (None, 4)}).outputs == ("y",)
