# Replaces CMake's own module: only the headers of the Python that a wheel is for, which need not run here.
# scripts/wheels.py sets Python_VERSION, Python_SOABI and Python_INCLUDE.
add_executable(Python::Interpreter IMPORTED)
set_target_properties(Python::Interpreter PROPERTIES IMPORTED_LOCATION "${Python_EXECUTABLE}")
set(Python_INTERPRETER_ID Python)
add_library(Python::Module INTERFACE IMPORTED)
target_include_directories(Python::Module INTERFACE ${Python_INCLUDE})
set(Python_INCLUDE_DIRS ${Python_INCLUDE})
set(Python_FOUND TRUE)
