#include "launch/head_link.h"

#include <gannet/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "base/format.h"

namespace gannet::launch {

using std::chrono::milliseconds;

milliseconds HeadLink::prepare_to_wait(Output& output, std::vector<pollfd>& waiting, milliseconds time) {
  const auto now = Clock::now();
  if (now - beaten_ >= kBeat) {
    output.frame(FrameKind::kBeat, "");
    beaten_ = now;
  }
  if (!is_lost_) waiting.push_back({0, POLLIN, 0});
  const milliseconds most = kBeat;
  return time.count() < 0 || time > most ? most : time;
}

void HeadLink::lose(const std::string& why) {
  std::cerr << "gannet node: " << why << '\n';
  signals_.push_back({.number = SIGTERM, .implied = Signal::kHeadLost});
  is_lost_ = true;
}

void HeadLink::take() {
  if (is_lost_) return;
  for (pollfd input{0, POLLIN, 0}; poll(&input, 1, 0) > 0;) {
    char bytes[64 * 1024];
    const ssize_t count = read(0, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      lose("the connection to gannet run has ended");
      break;
    }
    reader_.add({bytes, static_cast<size_t>(count)});
    heard_ = Clock::now();
  }
  while (auto frame = reader_.next()) {
    switch (frame->kind) {
      case FrameKind::kSignal:
        signals_.push_back({.number = static_cast<int>(std::strtol(frame->body.c_str(), nullptr, 10))});
        break;
      case FrameKind::kReaderEnded:
        signals_.push_back({.number = SIGTERM, .implied = Signal::kReaderEnded});
        break;
      case FrameKind::kFail:
        has_failed_ = true;
        break;
      case FrameKind::kBeat:
        break;
      case FrameKind::kGo:  // earlier signals and failures belong to the previous attempt
        signals_.clear();
        has_failed_ = false;
        [[fallthrough]];
      default:
        frames_.push_back(std::move(*frame));
    }
  }
  if (!reader_.foreign().empty())
    throw Error(ErrorCode::kCorrupt, "gannet node reads what `gannet run` sends it over ssh, and this is something else",
                "it is not started by hand: gannet run --hostfile FILE PROGRAM");
  if (!is_lost_ && Clock::now() - heard_ > kSilence) {
    lose(formatted("nothing has come from gannet run for {} s", kSilence.count()));
  }
}

bool HeadLink::next(Signal& signal) {
  if (signals_.empty()) return false;
  signal = signals_.front();
  signals_.pop_front();
  return true;
}

bool HeadLink::take_failure() {
  const bool has = has_failed_;
  has_failed_ = false;
  return has;
}

std::optional<Frame> HeadLink::next_frame() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

}  // namespace gannet::launch
