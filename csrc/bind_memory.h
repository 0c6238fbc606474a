// Memory that Python passes to native code: as an address, or as an object with the buffer
// protocol. Both native modules use it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace soliton::bindings {

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// A numpy array's memory, held as long as this object lives. A failed view is not an error: the
// caller asks is_valid().
class BufferView {
  public:
    // Wants a C-contiguous array of items with this `format`, a code of Python's struct module.
    BufferView(nanobind::handle array, char format, bool writable = false) {
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) {
            PyErr_Clear();
            view_.obj = nullptr;
            return;
        }
        is_valid_ = view_.format != nullptr && view_.format[0] == format && view_.format[1] == '\0';
    }
    ~BufferView() { PyBuffer_Release(&view_); }
    BufferView(const BufferView&) = delete;
    BufferView& operator=(const BufferView&) = delete;

    bool is_valid() const { return is_valid_; }
    bool is_vector() const { return is_valid_ && view_.ndim == 1; }
    bool is_vector(int64_t size) const { return is_vector() && view_.shape[0] == size; }

    // Only of a valid view.
    template <typename T>
    std::span<T> items() const {
        return {static_cast<T*>(view_.buf), static_cast<size_t>(view_.len / view_.itemsize)};
    }

  private:
    Py_buffer view_ = {};
    bool is_valid_ = false;
};

}  // namespace soliton::bindings
