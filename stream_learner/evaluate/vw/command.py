"""The meaning of a Vowpal Wabbit command line: `--adaptive -l 0.3 --loss_function hinge -q ab`.

VW's defaults apply, and what its flags imply. A flag that is not supported is refused, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stream_learner.core.model.losses import Loss, make_loss
from stream_learner.core.model.optimizers import FtrlProximal, Optimizer
from stream_learner.core.model.optimizers.scale_free import CoinBetting, Pistol
from stream_learner.core.model.optimizers.vw import VwDescent
from stream_learner.evaluate.formats.vw.parser import VwTextOptions
from stream_learner.evaluate.request import PATIENCE, PERIOD, PassPlan
from stream_learner.evaluate.vw.flags import GivenFlags
from stream_learner.evaluate.vw.settings import LOSSES, VwSettings

_PARTS: Final = ("adaptive", "normalized", "invariant", "sgd")
_OTHERS: Final = ("ftrl", "pistol", "coin")
_ALPHA_BETA: Final = {"descent": (0.5, 1.0), "ftrl": (0.5, 1.0), "pistol": (1.0, 0.5), "coin": (4.0, 1.0)}
_LETTERS: Final = {2: "quadratic", 3: "cubic"}


@dataclass(frozen=True, slots=True)
class VwCommand:
    """A command line of Vowpal Wabbit.

    text: as written. settings: the updates. reading: how VW text becomes features. plan: passes and holdout. test: True
    to learn nothing. files: the files it names.
    """

    text: str
    settings: VwSettings
    reading: VwTextOptions
    plan: PassPlan
    test: bool
    files: tuple[str, ...]

    @property
    def loss(self) -> Loss:
        """The loss that is learned by."""
        return make_loss_of(self.settings)

    def optimizer(self) -> Optimizer:
        """The optimizer in float64. Raises ValueError for numbers that it does not allow."""
        s = self.settings
        if s.kind == "ftrl":
            return FtrlProximal(s.alpha, s.beta, s.l1, s.l2)
        if s.kind == "pistol":
            return Pistol(alpha=s.alpha, beta=s.beta)
        if s.kind == "coin":
            return CoinBetting(alpha=s.alpha, beta=s.beta)
        return VwDescent(
            adaptive=s.adaptive,
            normalized=s.normalized,
            invariant=s.invariant,
            eta=s.eta,
            power_t=s.power_t,
            initial_t=s.initial_t,
            l1=s.l1,
            l2=s.l2,
            decay=s.decay,
        )


def make_loss_of(settings: VwSettings) -> Loss:
    """The learner's loss of these settings. Raises ValueError for a tau that is not between 0 and 1."""
    options = {"tau": settings.tau} if settings.loss == "quantile" else {}
    return make_loss(settings.loss, **options)


def parse_vw(command: str) -> VwCommand:
    """The meaning of a command line, with or without `vw` before it.

    Raises ConfigError for a flag that is not supported, with the nearest one that is, and for values and combinations
    that are not allowed.
    """
    given = GivenFlags(command)
    try:
        found = VwCommand(
            command, _settings(given), _reading(given), _plan(given), given.has("testonly"), given.all("data")
        )
        found.optimizer()
        make_loss_of(found.settings)
    except ValueError as error:
        raise given.error(str(error)) from None
    return found


def _settings(given: GivenFlags) -> VwSettings:
    kinds = [kind for kind in _OTHERS if given.has(kind)]
    parts = [part for part in _PARTS if given.has(part)]
    if len(kinds) > 1 or (kinds and parts):
        both = " and ".join(f"--{flag}" for flag in [*kinds, *parts])
        raise given.error(f"{both} exclude each other")
    kind = kinds[0] if kinds else "descent"
    if kind == "descent" and (given.has("ftrl_alpha") or given.has("ftrl_beta")):
        raise given.error("--ftrl_alpha and --ftrl_beta need --ftrl, --pistol or --coin")
    loss = given.text("loss_function", "squared")
    if loss not in LOSSES:
        raise given.error(f"--loss_function {loss} is not supported; it is one of {', '.join(LOSSES)}")
    adaptive, normalized, invariant = (not parts or part in parts for part in _PARTS[:3])
    plain = not (adaptive or normalized)
    alpha, beta = _ALPHA_BETA[kind]
    return VwSettings(
        kind=kind,
        loss=loss,
        tau=given.number("quantile_tau", 0.5),
        adaptive=adaptive,
        normalized=normalized,
        invariant=invariant,
        eta=given.number("learning_rate", 0.5 if adaptive and normalized else 10.0),
        power_t=given.number("power_t", 0.5),
        initial_t=given.number("initial_t", float(plain)),
        decay=given.number("decay_learning_rate", 1.0),
        alpha=given.number("ftrl_alpha", alpha),
        beta=given.number("ftrl_beta", beta),
        l1=given.number("l1", 0.0),
        l2=given.number("l2", 0.0),
        bits=given.count("bit_precision", 18),
    )


def _reading(given: GivenFlags) -> VwTextOptions:
    """The options of parsing text. FTRL-Proximal sums the values of a feature that an example has twice."""
    words: dict[str, list[str]] = {"quadratic": list(given.all("quadratic")), "cubic": list(given.all("cubic"))}
    for word in given.all("interactions"):
        if len(word) not in _LETTERS:
            raise given.error(f"--interactions {word} is not supported: two or three letters are")
        words[_LETTERS[len(word)]].append(word)
    hashed = given.text("hash", "strings")
    if hashed not in ("strings", "all"):
        raise given.error(f"--hash is strings or all, not {hashed!r}")
    return VwTextOptions(
        hashing="vw",
        bits=given.count("bit_precision", 18),
        hash_all=hashed == "all",
        quadratic=tuple(words["quadratic"]),
        cubic=tuple(words["cubic"]),
        ngram=given.count("ngram", 1),
        skips=given.count("skips", 0),
        ignore="".join(given.all("ignore")),
        keep="".join(given.all("keep")),
        noconstant=given.has("noconstant"),
        repeats=not given.has("ftrl"),
    )


def _plan(given: GivenFlags) -> PassPlan:
    return PassPlan(
        given.count("passes", 1),
        given.has("holdout_off"),
        given.count("holdout_period", PERIOD),
        given.count("early_terminate", PATIENCE),
    )
