"""gdb shows heed's views, tensors and numbers by what they hold:

    (gdb) source <prefix>/share/heed/gdb/heed_printers.py        or, in a clone, tools/gdb/heed_printers.py
    (gdb) print x
    $1 = View<const float, 2> [2, 3] strides [3, 1] = {{1, 2, 3}, {4, 5, 6}}
    (gdb) print layer_heads
    $2 = {num_heads = 8, num_kv_heads = 2, head_dim = 64, value_head_dim = dynamic}

A line `source …` in ~/.gdbinit does it for every session. Of each axis as many entries are shown as `set print elements`
says. Strides are left out where the elements lie without gaps. Needs no code in the program, only its debug information.
"""

import struct

import gdb
import gdb.printing


def array(value):
    """The elements of a C array."""
    first, last = value.type.range()
    return [int(value[i]) for i in range(first, last + 1)]


class ViewPrinter:
    """View<T, Rank, Space>, and the one inside a Tensor."""

    def __init__(self, value, name="View"):
        self.value = value
        self.name = name
        self.element = value.type.strip_typedefs().template_argument(0)
        self.data = value["data_"]
        self.extents = array(value["extents_"])
        self.strides = array(value["strides_"])

    def contiguous(self):
        stride = 1
        for extent, axis_stride in zip(reversed(self.extents), reversed(self.strides)):
            if extent != 1 and axis_stride != stride:
                return False
            stride *= extent
        return True

    def entries(self, axis, offset):
        """The text of the elements under the leading indices that led to `offset`."""
        if axis == len(self.extents):
            return (self.data + offset).dereference().format_string()
        limit = gdb.parameter("print elements") or self.extents[axis]
        shown = min(self.extents[axis], limit)
        texts = [self.entries(axis + 1, offset + i * self.strides[axis]) for i in range(shown)]
        if shown < self.extents[axis]:
            texts.append("...")
        return "{" + ", ".join(texts) + "}"

    def to_string(self):
        text = f"{self.name}<{self.element}, {len(self.extents)}>".replace("heed::", "")
        if int(self.data) == 0 and not any(self.extents):
            return text + " (none)"
        text += f" {self.extents}"
        if 0 in self.extents:
            return text
        if not self.contiguous():
            text += f" strides {self.strides}"
        try:
            return f"{text} = {self.entries(0, 0)}"
        except gdb.MemoryError as error:
            return f"{text} = <{error}>"


class TensorPrinter(ViewPrinter):
    """Tensor<T, Rank, Space>, which holds a View."""

    def __init__(self, value):
        super().__init__(value["view_"], "Tensor")


class HeadLayoutPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        sizes = []
        for field in self.value.type.fields():
            size = int(self.value[field.name])
            sizes.append(f"{field.name} = {'dynamic' if size == -1 else size}")
        return "{" + ", ".join(sizes) + "}"


class Bfloat16Printer:
    def __init__(self, value):
        self.bits = int(value["bits"])

    def to_string(self):
        return f"{struct.unpack('<f', struct.pack('<I', self.bits << 16))[0]:.4g}"


class Float16Printer:
    def __init__(self, value):
        self.bits = int(value["bits"])

    def to_string(self):
        return f"{struct.unpack('<e', struct.pack('<H', self.bits))[0]:.5g}"


def register(objfile=None):
    printers = gdb.printing.RegexpCollectionPrettyPrinter("heed")
    printers.add_printer("View", "^heed::View<.*>$", ViewPrinter)
    printers.add_printer("Tensor", "^heed::Tensor<.*>$", TensorPrinter)
    printers.add_printer("HeadLayout", "^heed::HeadLayout$", HeadLayoutPrinter)
    printers.add_printer("bfloat16", "^heed::bfloat16$", Bfloat16Printer)
    printers.add_printer("float16", "^heed::float16$", Float16Printer)
    gdb.printing.register_pretty_printer(objfile, printers, replace=True)


register()
