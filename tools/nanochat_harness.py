"""nanochat's own scripts/base_train.py, run as it is on tokens and weights that a caller gives: what
tools/train_replay.py, train_dial.py and train_torch_loss.py are made with.

    run = Run(nanochat="PATH", recipe="2026-07", flags="--depth=4 ...", vocab_size=96, batch=function)
    run.on_start, run.on_state, run.on_loss = ...
    run.go()

PATH is a checkout of karpathy/nanochat: 92d63d4 for the recipe 2026-07, ccf4b7f for 2026-01. The script
itself parses the flags, builds model and optimizer, and computes rates, momentum and decay; nothing of it is
copied. In place of what it imports for data, tokenizer, evaluation, logging and checkpoints stand small
objects. One run a process. Needs torch and filelock.

What is not as it is: in float32 and float64, January's Muon does not round to bfloat16 (July's does not
either then, by its own rule). In float64 everything that July computes is in float64, its rotary tables too,
and rms_norm keeps float32's epsilon; January's tables stay bfloat16 of float32, as it wants them.
"""
import contextlib
import gc
import importlib.util
import io
import logging
import os
import runpy
import shlex
import sys
import types

COMMITS = {"2026-07": "92d63d4", "2026-01": "ccf4b7f"}
OFF = {"2026-07": "--eval-every=-1 --core-metric-every=-1 --sample-every=-1 --save-every=-1",
       "2026-01": "--eval-every=-1 --core-metric-every=-1 --sample-every=-1 --save-every=-1"}
NEWTON_SCHULZ_ROUNDS = "X = G.bfloat16()"  # in January's muon.py


class Done(BaseException):
    """Ends the script once enough updates are done. No Exception, so that nothing catches it."""


def words_of(flags, recipe):
    """Flags as that month's base_train writes them."""
    words = []
    for word in shlex.split(flags):
        name, sign, value = word.partition("=")
        if name == "--recipe" or (recipe == "2026-01" and word == "--window-pattern=L"):  # it has no other
            continue
        if recipe == "2026-01" and name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        words.append(name + sign + value)
    return words


def stub(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


class Model:
    """The model as base_train holds it: a call is one micro-batch."""

    def __init__(self, model, run):
        self.__dict__.update(model=model, run=run)

    def __call__(self, x, y):
        return self.run.micro_batch(self.model, x, y)

    def __getattr__(self, name):
        return getattr(self.model, name)


class Run:
    """batch(i) gives x and y, int64 tensors [B, T], of micro-batch i of the whole run.

    on_start(gpt)       after nanochat has initialised the weights, which may be changed in place
    on_state(step, gpt) before update `step` + 1, and once behind the last; gradients are None
    on_loss(step, loss) for each micro-batch, a detached tensor

    script: the names of base_train, once it trains. meta: the model has no numbers, and nothing is trained.
    """

    def __init__(self, nanochat, recipe, flags, vocab_size, batch, steps=None, dtype="float32",
                 compiled=False, device="cpu", seed=42, meta=False):
        self.nanochat, self.recipe, self.vocab_size, self.batch = nanochat, recipe, vocab_size, batch
        self.steps, self.dtype, self.compiled, self.device, self.seed = steps, dtype, compiled, device, seed
        self.meta = meta
        self.words = words_of(f"{flags} {OFF[recipe]} --device-type={device}", recipe)
        self.on_start = self.on_state = self.on_loss = lambda *_: None
        self.step = self.micro = 0
        self.gpt = self.optimizers = self.script = None

    # ---- what the script calls ----

    def micro_batch(self, model, x, y):
        if self.script is None:
            self.script = sys._getframe(2).f_globals
        if self.meta:
            raise Done
        if self.micro == 0:
            self.on_state(self.step, self.gpt)
            if self.step == self.steps:
                raise Done
        loss = model(x, y)
        self.on_loss(self.step, loss.detach())
        self.micro += 1
        return loss

    def updated(self, *_):
        self.step, self.micro = self.step + 1, 0

    def saved(self, *_, **__):
        """save_checkpoint: the script is through."""
        self.on_state(self.step, self.gpt)
        raise Done

    def loader(self, *_, **__):
        i = 0
        while True:  # it asks for one more than it trains on
            x, y = self.batch(i)
            yield x.to(self.device), y.to(self.device), {"epoch": 1, "pq_idx": 0, "rg_idx": i}
            i += 1

    # ---- what the script imports ----

    def put_stubs(self):
        run = self
        tokenizer = types.SimpleNamespace(get_vocab_size=lambda: run.vocab_size)
        stub("wandb")
        stub("nanochat.tokenizer", get_tokenizer=lambda: tokenizer, get_token_bytes=lambda device: None)
        names = ["tokenizing_distributed_data_loader", "tokenizing_distributed_data_loader_with_state"]
        names += [name + "_bos_bestfit" for name in names]
        names.append("tokenizing_distributed_data_loader_with_state_bos_bestfit")
        stub("nanochat.dataloader", **{name: self.loader for name in names})
        stub("nanochat.checkpoint_manager", save_checkpoint=self.saved, load_checkpoint=None)
        stub("nanochat.loss_eval", evaluate_bpb=None)
        stub("nanochat.engine", Engine=None)
        stub("scripts.base_eval", evaluate_core=None, evaluate_model=None)

    def put_compile(self, torch):
        compiler = torch.compile if self.compiled else None

        def compile(what=None, **options):
            if what is None:
                return lambda function: compile(function, **options)
            made = compiler(what, **options) if compiler else what
            return Model(made, self) if isinstance(what, torch.nn.Module) else made

        torch.compile = compile

    def put_seed(self, torch):
        """compute_init seeds with 42."""
        for module in (torch, torch.cuda):
            module.manual_seed = lambda seed, of=module.manual_seed: of(self.seed if seed == 42 else seed)

    def put_float64(self, torch):
        rms_norm, july = torch.nn.functional.rms_norm, self.recipe == "2026-07"
        torch.nn.functional.rms_norm = lambda x, shape: rms_norm(x, shape, eps=2.0**-23)
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        common = sys.modules["nanochat.common"]
        if july:
            common.COMPUTE_DTYPE = torch.float64
            torch.float32 = torch.float64

    def load_unrounded_muon(self):
        path = os.path.join(self.nanochat, "nanochat", "muon.py")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if text.count(NEWTON_SCHULZ_ROUNDS) != 1:
            sys.exit(f"{path}: not the muon.py of {COMMITS[self.recipe]}")
        stub("nanochat.muon", __file__=path)
        module = sys.modules["nanochat.muon"]
        exec(compile(text.replace(NEWTON_SCHULZ_ROUNDS, "X = G"), path, "exec"), module.__dict__)

    def load(self):
        """nanochat.gpt, with its model's calls told to us."""
        os.environ["NANOCHAT_DTYPE"] = "bfloat16" if self.dtype == "bfloat16" else "float32"
        sys.path.insert(0, os.path.abspath(self.nanochat))
        sys.dont_write_bytecode = True
        if importlib.util.find_spec("nanochat") is None:
            sys.exit(f"{self.nanochat}: no checkout of nanochat")
        import torch
        import nanochat.common  # noqa: F401
        self.put_stubs()
        self.put_compile(torch)
        self.put_seed(torch)
        if self.dtype == "float64":
            self.put_float64(torch)
        if self.recipe == "2026-01" and self.dtype != "bfloat16":
            self.load_unrounded_muon()
        import nanochat.gpt as module
        if (self.recipe == "2026-07") != hasattr(module, "has_ve"):
            sys.exit(f"{self.nanochat}: not nanochat as {COMMITS[self.recipe]} has it")
        init_weights, last = module.GPT.init_weights, self

        def initialised(gpt):
            last.gpt = gpt
            if last.meta:
                return
            init_weights(gpt)
            with torch.no_grad():
                last.on_start(gpt)

        def told(of):
            def made(*args, **kwargs):
                optimizers = of(*args, **kwargs)
                last.optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
                last.optimizers[-1].register_step_post_hook(last.updated)
                return optimizers
            return made

        module.GPT.init_weights = initialised
        if self.meta:
            module.GPT.to_empty = lambda gpt, device: gpt
        name = "setup_optimizer" if self.recipe == "2026-07" else "setup_optimizers"
        setattr(module.GPT, name, told(getattr(module.GPT, name)))

    def go(self, verbose=False):
        self.load()
        sys.argv = ["base_train.py", *self.words]
        if not verbose:
            logging.disable(logging.INFO)
        quiet = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
        with quiet, contextlib.suppress(Done):
            runpy.run_path(os.path.join(self.nanochat, "scripts", "base_train.py"), run_name="__main__")
        gc.unfreeze()  # it switches the collector off
        gc.enable()


def float32_of(tensor):
    """A copy on the CPU; float64 stays, so that what is compared with it is not rounded twice."""
    import torch
    copy = tensor.detach().cpu().clone()
    return copy if copy.dtype == torch.float64 else copy.to(torch.float)
