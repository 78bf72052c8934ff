// The protocol of `gannet run` and its agents on other hosts (launch/agent.h) over ssh: a greeting,
// then frames of a letter, a length and a body of any bytes.
//
//   write(channel, std::string(kGreeting) + framed(FrameKind::kSay, "ready"))
//   FrameReader reader;
//   reader.add(bytes);
//   while (auto frame = reader.next()) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::launch {

enum class FrameKind : char {
  // from the head
  kPlan = 'p',         // launch/node_plan.h
  kGo = 'g',           // start the ranks: restart number, address, port
  kSignal = 's',       // the number of a signal for the ranks
  kReaderEnded = 'e',  // the reader of gannet run's output has ended: stop the ranks
  kFail = 'f',         // ranks of another host have failed: end yours
  // from an agent
  kReady = 'r',    // the ranks can be started: Readiness
  kRefused = 'n',  // the reason, as a sentence
  kOut = '1',      // whole lines of the ranks' stdout
  kError = '2',    // whole lines of the ranks' stderr
  kSay = 't',      // a line from the agent itself
  kOutcome = 'x',  // all ranks have ended: AttemptOutcome
  // both
  kBeat = 'b',  // a heartbeat
};

struct Frame {
  FrameKind kind;
  std::string body;
};

// The first bytes in both directions. Any other bytes come from another program, such as a shell's start-up file.
inline constexpr std::string_view kGreeting = "gannet node 1\n";

std::string framed(FrameKind kind, std::string_view body);

class FrameReader {
 public:
  void add(std::string_view bytes) { bytes_.append(bytes); }
  std::optional<Frame> next();
  bool has_greeted() const { return has_greeted_; }
  // The bytes that came in place of the greeting, or of a frame; "" if all is well.
  const std::string& foreign() const { return foreign_; }

 private:
  std::string bytes_, foreign_;
  bool has_greeted_ = false;
};

// Packs strings without NUL bytes, such as arguments and variables, into one body.
std::string packed(const std::vector<std::string>& texts);
std::vector<std::string> unpacked(std::string_view body);

// Reads a body's strings in turn. Throws Error(kCorrupt) past the end, or if a number is malformed.
class Unpacker {
 public:
  explicit Unpacker(std::string_view body) : texts_(unpacked(body)) {}
  const std::string& text();
  int64_t number();
  std::vector<std::string> texts();  // a count, then that many strings

 private:
  std::vector<std::string> texts_;
  size_t next_ = 0;
};

}  // namespace gannet::launch
