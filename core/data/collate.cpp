// Collates samples into a batch, and reports the errors that happen on the way.
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <gannet/data.h>
#include <gannet/error.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>

#include "base/format.h"
#include "data/failure.h"

namespace gannet {
namespace loading {
namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  if (!tensor.defined()) return "an undefined tensor";
  text << tensor.scalar_type() << ' ' << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

}  // namespace

at::Tensor stack(const std::vector<at::Tensor>& tensors, const char* member) {
  const bool is_of_none = std::none_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.defined(); });
  if (is_of_none && std::string_view(member) == "target") return {};  // samples without labels
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor &first = tensors.front(), &other = tensors[i];
    if (other.defined() && other.sizes() == first.sizes() && other.scalar_type() == first.scalar_type() &&
        other.device() == first.device())
      continue;
    throw Error(ErrorCode::kArgument,
                formatted("samples of a micro-batch cannot be stacked: '{}' is {} in the first and {} in number {}", member,
                          describe(first), describe(other), i + 1),
                "make the samples alike, or give a collate_fn that pads them");
  }
  return at::stack(tensors);
}

std::string list_samples(Indices samples) {
  constexpr size_t kShown = 8;
  std::string text = samples.size() == 1 ? "sample " : "samples ";
  for (size_t i = 0; i < std::min(samples.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(samples[i]);
  return samples.size() > kShown ? formatted("{} ... ({} in all)", text, samples.size()) : text;
}

std::string type_name(const std::type_info& type) {
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  const std::string name = demangled ? demangled : type.name();
  std::free(demangled);
  return name;
}

void rethrow_with(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    std::throw_with_nested(Error(error.code(), formatted("{}: {}", where, error.message()), error.next_step()));
  } catch (const c10::Error& error) {
    std::throw_with_nested(Error(ErrorCode::kArgument, formatted("{}: {}", where, error.what_without_backtrace())));
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(ErrorCode::kArgument, formatted("{}: {}", where, error.what())));
  } catch (...) {
    std::throw_with_nested(Error(ErrorCode::kArgument, formatted("{}: what was thrown is not a std::exception", where)));
  }
}

void rethrow_with_samples(Indices samples) { rethrow_with(formatted("reading {} of the dataset failed", list_samples(samples))); }

void fail_repeating_empty() {
  throw Error(ErrorCode::kArgument, "the loader that a RepeatingLoader repeats gave nothing in a whole epoch",
              "check the dataset's size and drop_last");
}

}  // namespace loading
}  // namespace gannet
