# What Cython does not declare, or wrongly: PyType_GenericAlloc takes an object there, which newer C compilers refuse.
from cpython.object cimport PyTypeObject

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    int PyGC_Disable()
    int PyGC_Enable()
    void PyObject_GC_UnTrack(void* object)

    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_alloc
