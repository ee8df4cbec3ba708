"""libheed_peers.so: heed, Eigen and OpenBLAS as jobs that are made once and run by one call."""

import ctypes

_library = None


def load(path):
    """After torch: its OpenMP then serves heed and Eigen, too, and there is one pool of threads in the process."""
    global _library
    _library = ctypes.CDLL(path)
    _library.peers_peak.restype = ctypes.c_double
    _library.peers_read.restype = ctypes.c_double
    _library.peers_bytes.restype = ctypes.c_int64
    _library.heed_about.restype = ctypes.c_char_p
    _library.product_about.restype = ctypes.c_char_p


def peak(threads):
    """GFLOP/s of fused multiply-adds in registers, float, now."""
    return _library.peers_peak(threads)


def read(threads, byte_count):
    """GB/s of reading so many bytes, now."""
    return _library.peers_read(threads, ctypes.c_double(byte_count))


def about(product=None):
    text = _library.product_about(product.encode()) if product else _library.heed_about()
    return text.decode().strip()


class Job:
    """job() runs it. `maker` is a function of the library; tensors are handed over as pointers, and kept alive."""

    def __init__(self, maker, *arguments):
        function = getattr(_library, maker)
        function.restype = ctypes.c_void_p
        self._kept = arguments
        self._handle = ctypes.c_void_p(function(*[_argument(each) for each in arguments]))
        if not self._handle:
            raise RuntimeError(f"{maker} failed")
        self._run = _library.peers_run
        self._free = _library.peers_free

    def __call__(self):
        self._run(self._handle)

    def bytes(self):
        return _library.peers_bytes(self._handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self._free(self._handle)


def _argument(value):
    if isinstance(value, (str, bytes)):
        return ctypes.c_char_p(value.encode() if isinstance(value, str) else value)
    if isinstance(value, bool):
        return ctypes.c_int(value)
    if isinstance(value, Threads):
        return ctypes.c_int(value)
    if isinstance(value, int):
        return ctypes.c_int64(value)
    assert value.is_contiguous()
    return ctypes.c_void_p(value.data_ptr())  # a tensor of torch's


class Threads(int):
    """An int that the library takes as C's int."""
