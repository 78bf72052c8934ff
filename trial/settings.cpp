// The lengths and settings of a trial.
#include <gannet/error.h>
#include <gannet/trial_settings.h>

#include <charconv>

namespace gannet {

TrialLength TrialLength::parse(const std::string& text, const std::string& name) {
  TrialLength length;
  const char *begin = text.data(), *end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, length.count);
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(" _:"));
  if (unit == "epochs" || unit == "epoch")
    length.unit = Unit::kEpochs;
  else if (!unit.empty() && unit != "batches" && unit != "batch")
    length.count = 0;
  if (error != std::errc() || length.count <= 0)
    throw Error(ErrorCode::kArgument, name + ": '" + text + "' is not a length above 0",
                "write 100, \"100 batches\" or \"3 epochs\"");
  return length;
}

std::string TrialLength::to_string() const {
  return std::to_string(count) + (unit == Unit::kBatches ? " batch" : " epoch") +
         (count == 1               ? ""
          : unit == Unit::kBatches ? "es"
                                   : "s");
}

void TrialSettings::check() const {
  std::string mistakes;
  const auto require = [&](bool holds, const std::string& mistake) {
    if (!holds) mistakes += (mistakes.empty() ? "" : "\n  ") + mistake;
  };
  require(static_cast<bool>(max_length), "max_length is not given: how long is the trial to train?");
  require(validation_period.count >= 0 && checkpoint_period.count >= 0, "a period is below 0");
  require(report_period > 0, "report_period is " + std::to_string(report_period) + ", and must be above 0");
  require(epoch_length >= 0, "epoch_length is " + std::to_string(epoch_length) + ", and must not be below 0");
  require(keep_checkpoints >= 0, "keep_checkpoints is " + std::to_string(keep_checkpoints) + ", and must not be below 0");
  require(!output_dir.empty(), "output_dir is empty");
  if (!mistakes.empty())
    throw Error(ErrorCode::kArgument, mistakes, "--max_length 1000 trains 1000 batches, --max_length \"3 epochs\" three epochs");
}

}  // namespace gannet
