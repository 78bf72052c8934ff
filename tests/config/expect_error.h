// Runs a call that must throw gannet::Error and hands the error back.
#pragma once

#include <gannet/error.h>
#include <gtest/gtest.h>

namespace gannet {

template <typename Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no gannet::Error was thrown";
  return Error(ErrorCode::kInternal, "");
}

}  // namespace gannet
