# Replaces CMake's own module: only the headers of the Python that a wheel is for, which need not run here.
# scripts/wheels.py sets Python_VERSION, Python_SOABI and Python_INCLUDE; and Python_SOSABI, the suffix of modules
# for the stable ABI, if the wheel is for that.
add_executable(Python::Interpreter IMPORTED)
set_target_properties(Python::Interpreter PROPERTIES IMPORTED_LOCATION "${Python_EXECUTABLE}")
set(Python_INTERPRETER_ID Python)
foreach(target Python::Module Python::SABIModule)
  if(target STREQUAL "Python::Module" OR Python_SOSABI)
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} INTERFACE ${Python_INCLUDE})
  endif()
endforeach()
set(Python_INCLUDE_DIRS ${Python_INCLUDE})
set(Python_FOUND TRUE)
