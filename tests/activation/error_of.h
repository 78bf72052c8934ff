// The gannet::Error that a call throws.
#pragma once

#include <gannet/error.h>

#include <stdexcept>

namespace gannet::test {

template <class F>
Error activation_error(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("there was no error");
}

}  // namespace gannet::test
