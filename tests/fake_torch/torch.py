"""As much of PyTorch as examples/grouped_gemm needs, without PyTorch: tensors are the host's memory, which an
emulated GPU sees too. FAKE_TORCH_GPU is the compute capability of the GPU that is there, "9.0"; with FAKE_TORCH_OLD
there is no _grouped_mm, which nobody calls here."""
import ctypes
import os
import types

__version__ = "fake"
float4_e2m1fn_x2, float8_e4m3fn, float8_e4m3fnuz, uint8, float16 = (
    "float4_e2m1fn_x2", "float8_e4m3fn", "float8_e4m3fnuz", "uint8", "float16")
SIZES = {float16: 2}
if "FAKE_TORCH_OLD" not in os.environ:
    _grouped_mm = None


class Device(types.SimpleNamespace):
    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


CPU, GPU = Device(type="cpu", index=None), Device(type="cuda", index=0)


class Tensor:
    """`shape` and `strides` in elements; memory begins at a multiple of 16 bytes."""

    def __init__(self, contents, dtype, shape, strides, device=GPU):
        self.dtype, self.shape, self.strides, self.device = dtype, shape, strides, device
        self.memory = ctypes.create_string_buffer(bytes(contents), len(contents) + 16)
        self.offset = -ctypes.addressof(self.memory) % 16
        ctypes.memmove(self.data_ptr(), bytes(contents), len(contents))
        self.bytes = len(contents)

    def data_ptr(self):
        return ctypes.addressof(self.memory) + self.offset

    def stride(self):
        return self.strides

    def numel(self):
        return self.bytes // SIZES.get(self.dtype, 1)

    def to(self, device, non_blocking=False):
        return self if device == self.device else Tensor(self.contents(), self.dtype, self.shape, self.strides, device)

    def contents(self):
        return ctypes.string_at(self.data_ptr(), self.bytes)


def empty(count, dtype, device):
    return Tensor(b"\xff" * (count * SIZES.get(dtype, 1)), dtype, (count,), (1,), device)


def capability():
    return tuple(map(int, os.environ["FAKE_TORCH_GPU"].split(".")))


cuda = types.SimpleNamespace(
    is_available=lambda: "FAKE_TORCH_GPU" in os.environ, get_device_name=lambda: "Fake GPU",
    get_device_capability=capability, mem_get_info=lambda: (1 << 30, int(os.environ.get("FAKE_TORCH_GIB", 80)) << 30),
    current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
