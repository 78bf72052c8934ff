#include "engine/operator_errors.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/format.h"
#include "config/document.h"
#include "config/precision.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

// Returns whether the error is about dtypes, which operators report in different words: "mat1 and
// mat2 must have the same dtype, but got Float and BFloat16", "expected scalar type Float but found
// Half", "Input type (float) and bias type (c10::BFloat16) should be the same", "Found dtype Float
// but expected BFloat16", "mixed dtype (CPU): expect parameter to have scalar type of Float"
// (normalisations).
bool is_of_dtypes(const std::string& line, const std::string& parameters) {
  const auto has = [&](const std::string& text) { return line.find(text) != std::string::npos; };
  if ((has("same dtype") && !has("but got")) || has("mixed dtype")) return true;
  return has(parameters) && (has("dtype") || has("scalar type") || has("Input type"));
}

// Returns whether the error is about tensors on a different device than the parameters: "Expected
// all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!", "Input
// type (CPUFloatType) and weight type (checkedFloatType) should be the same".
bool is_of_devices(const std::string& line) {
  const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
  return has("on the same device") || (has("Input type (CPU") && has("should be the same")) || has("is on cpu, ");
}

bool has_fp32_buffer(const torch::nn::Module& module) {
  const std::vector<at::Tensor> buffers = module.buffers();
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const at::Tensor& buffer) { return buffer.defined() && buffer.scalar_type() == at::kFloat; });
}

// Names the section that gave the parameters their dtype: "/bf16/enabled = true
// (ds_config.json:3:5)".
std::string section(const RankContext& context) {
  const config::Settings& settings = context.settings();
  const std::string path = settings.bf16.enabled ? "/bf16/enabled" : settings.fp16.enabled ? "/fp16/enabled" : "/amp/opt_level";
  for (const auto& line : context.resolved.effective)
    if (line.path == path) return formatted("{} = {} ({})", config::dotted(path), line.value.to_json(), line.origin);
  return path;
}

// For use within a catch block only. Returns if the error is not about devices.
void refuse_two_devices(const RankContext& context, const char* call) {
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace(), line = text.substr(0, text.find('\n'));
    if (error_of(error) || !is_of_devices(line)) return;
    throw Error(
        ErrorCode::kMismatch,
        formatted("{} failed in an operator with tensors of two devices: {}; the parameters are on {}", call, line,
                  context.device.str()),
        "move inputs and labels there, x.to(engine->device()), and give tensors that forward makes the options of others: "
        "torch::arange(n, x.options())");
  } catch (...) {  // not from LibTorch
  }
}

}  // namespace

void rethrow_of_operators(const RankContext& context, const torch::nn::Module& module, const char* call) {
  if (!context.computes_on_host()) refuse_two_devices(context, call);
  const auto dtype = context.precision().model;
  if (!dtype) rethrow_as_ours(call);
  const bool is_half = *dtype == config::DType::kFloat16;
  const auto refuse = [&](const std::string& operators, const std::string& line) {
    throw Error(
        ErrorCode::kMismatch,
        formatted("{} failed in an operator {}: {}; the config has the parameters in {}: {}", call, operators, line,
                  is_half ? "fp16" : "bf16", section(context)),
        formatted("{}give forward its inputs and labels of floating point in that dtype, x.to(at::{}), as gannet::Trainer "
                  "does; or keep the parameters in fp32 and let each operator choose: \"torch_autocast\": "
                  "{{\"enabled\": true}} in place of that section",
                  has_fp32_buffer(module)
                      ? formatted("where it is a normalization with fp32 buffers (BatchNorm): \"data_types\": "
                                  "{{\"buffer_dtype\": \"{}\"}}; else ",
                                  is_half ? "fp16" : "bf16")
                      : "",
                  is_half ? "kHalf" : "kBFloat16"));
  };
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace(), line = text.substr(0, text.find('\n'));
    if (!error_of(error) && is_of_dtypes(line, is_half ? "Half" : "BFloat16")) refuse("with tensors of two dtypes", line);
  } catch (const Error&) {  // already a gannet::Error
  } catch (const std::exception& error) {
    // oneDNN's error for an LSTM or a GRU, which does not name the cause.
    const std::string line = error.what();
    if (line.starts_with("could not create a primitive"))
      refuse("that takes tensors of one dtype", line.substr(0, line.find(". ")));
  } catch (...) {  // not from LibTorch
  }
  rethrow_as_ours(call);
}

}  // namespace gannet
