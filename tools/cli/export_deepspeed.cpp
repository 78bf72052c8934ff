#include "cli/export_deepspeed.h"

#include <gannet/error.h>

#include <iostream>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "convert/deepspeed_folder.h"
#include "convert/write_deepspeed.h"

namespace gannet::cli {

std::pair<std::string, std::string> parse_pair(const std::string& option, const std::string& text, const std::string& meaning) {
  const size_t at = text.find('=');
  if (at == text.npos) throw Error(ErrorCode::kArgument, formatted("{} {}: there is no '=' in it", option, text), meaning);
  return {text.substr(0, at), text.substr(at + 1)};
}

void ToDeepSpeedArguments::add_options(CLI::App& exporting) {
  exporting.add_option("--stage", stage, "ZeRO stage that DeepSpeed resumes with, 0 to 3 (--format deepspeed)");
  exporting.add_option("--ranks", ranks, "number of data-parallel ranks that DeepSpeed resumes with (--format deepspeed)")
      ->check(CLI::Range(1, 100'000));
  exporting
      .add_option("--sub-group-size", sub_group_size,
                  "zero_optimization.sub_group_size of DeepSpeed's config at stage 3 (default: that of the checkpoint's config)")
      ->check(CLI::PositiveNumber);
  exporting.add_option("--rename", renames,
                       "FROM=TO: replace the prefix FROM of names by TO; may be given several times (deepspeed, universal)");
  exporting.add_option("--tied", tied,
                       "ALIAS=NAME: another name of the tied parameter NAME in DeepSpeed's model; may be given several times "
                       "(deepspeed, universal)");
}

void ToDeepSpeedArguments::refuse(const std::string& format) const {
  const char* given = stage >= 0           ? "--stage"
                      : ranks >= 0         ? "--ranks"
                      : sub_group_size > 0 ? "--sub-group-size"
                      : !renames.empty()   ? "--rename"
                      : !tied.empty()      ? "--tied"
                                           : nullptr;
  if (!given) return;
  throw Error(ErrorCode::kArgument,
              formatted("{} is for --format deepspeed{}, not for {}", given,
                        renames.empty() && tied.empty() ? "" : " and universal", format.empty() ? "weights alone" : format),
              formatted("add --format deepspeed, or leave {} out", given));
}

bool is_deepspeed_format(const std::string& format) { return format == "deepspeed" || format == "universal"; }

void export_to_deepspeed(const std::string& folder, const std::string& tag, const std::string& out, const std::string& format,
                         const ToDeepSpeedArguments& arguments) {
  if (!checkpoint::holds_checkpoints(folder) && convert::is_deepspeed_folder(folder))
    throw Error(ErrorCode::kArgument, formatted("{} is already a DeepSpeed checkpoint", folder),
                "import it first (gannet checkpoint import), to change its stage or number of ranks");
  convert::ToDeepSpeedOptions options;
  for (const auto& text : arguments.renames)
    options.renames.push_back(parse_pair("--rename", text, "write FROM=TO: it replaces the prefix FROM of names by TO"));
  for (const auto& text : arguments.tied)
    options.tied.push_back(parse_pair("--tied", text, "write ALIAS=NAME, for example lm_head.weight=transformer.wte.weight"));
  const checkpoint::Opened opened = checkpoint::open(folder, {.tag = tag});
  for (const std::string& note : opened.notes()) std::cerr << "gannet: " << note << '\n';
  if (format == "universal") {
    if (arguments.stage >= 0 || arguments.ranks >= 0 || arguments.sub_group_size > 0)
      throw Error(ErrorCode::kArgument, "a universal checkpoint is for any stage and number of ranks",
                  "leave --stage, --ranks and --sub-group-size out");
    std::cout << convert::write_universal(opened, out, options).to_string();
    return;
  }
  if (arguments.stage < 0 || arguments.ranks < 0)
    throw Error(ErrorCode::kArgument, formatted("--format deepspeed needs {}", arguments.stage < 0 ? "--stage" : "--ranks"),
                "give the ZeRO stage (0 to 3) and the number of ranks of DeepSpeed's run; --format universal needs neither");
  std::cout
      << convert::write_deepspeed(opened, out, {arguments.stage, arguments.ranks, arguments.sub_group_size}, options).to_string();
}

}  // namespace gannet::cli
