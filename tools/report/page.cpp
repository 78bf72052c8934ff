// The page: its template filled in. What comes from the file is escaped where it becomes HTML or a script's data.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "report/charts.h"
#include "report/format.h"
#include "report/report.h"
#include "report/tables.h"
#include "report/timeline.h"
#include "report_files.h"  // made by embed.cmake

namespace gannet::report {
namespace {

constexpr size_t kBuckets = 600;  // about the pixels of a chart
constexpr size_t kShownReason = 200;

// {{name}} by the value of that name, once: what is put in is not looked at again.
std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& values) {
  std::string text;
  for (size_t at; (at = page.find("{{")) != std::string_view::npos;) {
    const size_t end = page.find("}}", at);
    const auto value = values.find(page.substr(at + 2, end - at - 2));
    GANNET_CHECK(value != values.end(), "the report's page has a place that nothing fills");
    text += page.substr(0, at);
    text += value->second;
    page.remove_prefix(end + 2);
  }
  return text += page;
}

std::string tiles_html(const Records& records) {
  std::string html;
  for (const Tile& tile : tiles_of(records))
    html += "<div><dt>" + html_text(tile.label) + "</dt><dd>" + html_text(tile.value) + "<small>" + html_text(tile.detail) +
            "</small></dd></div>\n";
  return html;
}

std::string notes_html(const std::vector<std::string>& notes) {
  std::string html;
  for (const std::string& note : notes) html += "<li>" + html_text(note) + "</li>\n";
  return html.empty() ? "" : "<ul class=\"notes\">\n" + html + "</ul>\n";
}

std::string section(const std::string& id, const std::string& title, const std::string& inside,
                    const std::string& behind_title = "") {
  if (inside.empty()) return "";
  return "<section id=\"" + id + "\"><h2>" + title + behind_title + "</h2>\n" + inside + "</section>\n";
}

std::string clipped_reason(const std::string& reason) {
  if (reason.size() <= kShownReason) return reason;
  size_t end = kShownReason;
  while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0) == 0x80) --end;
  return reason.substr(0, end) + " ...";
}

// What the bar above the charts says of a bucket.
struct Moment {
  std::string steps, when, skipped;
};

Moment moment_of(const Records& records, const Buckets::Range& range) {
  const Step& first = records.steps[range.begin];
  const Step& last = records.steps[range.end - 1];
  Moment moment;
  moment.steps = first.step == last.step ? with_commas(last.step) : with_commas(first.step) + "–" + with_commas(last.step);
  moment.when = clock_text(last.time) + (records.runs.size() > 1 ? " into run " + std::to_string(last.run + 1) : "");
  int64_t skipped = 0;
  for (size_t i = range.begin; i < range.end; ++i)
    if (!records.steps[i].applied && ++skipped == 1) moment.skipped = clipped_reason(records.steps[i].reason);
  if (skipped > 1) moment.skipped = plural(skipped, "step") + " skipped; the first: " + moment.skipped;
  if (skipped == 1) moment.skipped = moment.skipped.empty() ? "skipped" : "skipped: " + moment.skipped;
  return moment;
}

// What the script shows under the pointer: by bucket its place and words, and by chart and line the values as text.
std::string data_json(const Records& records, const Charts& charts, const Buckets& buckets) {
  const auto list = [](const auto& items, auto text) {
    std::string json;
    for (size_t i = 0; i < items.size(); ++i) json += (i ? "," : "") + text(items[i]);
    return "[" + json + "]";
  };
  std::vector<Moment> moments;
  for (const auto& range : buckets.ranges()) moments.push_back(moment_of(records, range));
  std::string json = "{\"x\":" + list(buckets.ranges(), [](const Buckets::Range& range) {
                       char text[32];
                       std::snprintf(text, sizeof(text), "%.4f", range.x);
                       return std::string(text);
                     });
  json += ",\n\"step\":" + list(moments, [](const Moment& moment) { return script_string(moment.steps); });
  json += ",\n\"when\":" + list(moments, [](const Moment& moment) { return script_string(moment.when); });
  json += ",\n\"skipped\":" + list(moments, [](const Moment& moment) { return script_string(moment.skipped); });
  json += ",\n\"charts\":{";
  for (size_t c = 0; c < charts.all.size(); ++c) {
    const Chart& chart = charts.all[c];
    std::vector<std::string> lines;
    for (const ChartLine& line : chart.lines) {
      lines.push_back(list(line.series.points, [&](const Point& point) {
        return script_string(readout(point, chart.is_stack || buckets.is_exact()));
      }));
      if (!line.smooth.empty())
        lines.push_back(list(line.smooth, [](const Point& point) { return script_string(readout(point, true)); }));
    }
    json += (c ? ",\n" : "\n") + script_string(chart.id) + ":" + list(lines, [](const std::string& line) { return line; });
  }
  return json + "}}";
}

std::string charts_html(const Records& records, const Charts& charts, const Buckets& buckets) {
  if (records.steps.empty()) return "";
  const Moment last = moment_of(records, buckets.ranges().back());
  std::string html = "<section id=\"charts\">\n<div class=\"now\" role=\"status\"><b>step <span id=\"now-step\">" + last.steps +
                     "</span></b><span id=\"now-when\">" + last.when + "</span><span id=\"now-skipped\">" +
                     html_text(last.skipped) + "</span></div>\n";
  html += timeline_html(records, buckets);
  html += "<div class=\"grid\">\n";
  const Marks marks = marks_of(records, buckets);
  for (const Chart& chart : charts.all) html += chart_html(chart, buckets, marks);
  return html + "</div>\n</section>\n";
}

std::string heading(const Records& records) {
  const std::filesystem::path path = std::filesystem::absolute(records.path).lexically_normal();
  const std::string folder = path.parent_path().filename().string();
  return (folder.empty() ? "" : folder + "/") + path.filename().string();
}

std::string began(const Records& records) {
  const Run& run = records.runs.front();
  std::string text = run.started_at.empty() ? "" : "started " + run.started_at;
  for (const auto& [key, value] : run.machine)
    if (key == "host") text += (text.empty() ? "on " : " on ") + value;
  if (!run.gannet.empty()) text += (text.empty() ? "" : ", ") + ("Gannet " + run.gannet);
  return text;
}

}  // namespace

std::string Report::html() const {
  const Records& records = records_;
  const Buckets buckets(records.steps, kBuckets);
  const Charts charts = charts_of(records, buckets);
  std::vector<std::string> notes = records.notes;
  notes.insert(notes.end(), charts.notes.begin(), charts.notes.end());
  const Run& run = records.runs.back();
  const int64_t skipped = skipped_steps(records);
  const auto small = [](const std::string& text) { return " <small>" + html_text(text) + "</small>"; };

  std::string tables = section("skipped", "Skipped steps", skipped_table(records), small(with_commas(skipped)));
  tables += section("events", "Events", events_table(records));
  tables += section("runs", "Runs", runs_table(records));
  if (!records.steps.empty()) {
    tables += section("numbers", "Numbers",
                      numbers_table(charts) + "<details><summary>Some steps, evenly spaced</summary>\n" + steps_table(records) +
                          "</details>\n");
  }
  const std::string of_last = records.runs.size() > 1 ? small("of the last run") : "";
  tables += section("config", "Config", config_table(run), of_last);
  tables += section("plugins", "Plugins", plugins_table(run), of_last);
  tables += section("machine", "Machine", machine_table(run), of_last);

  return filled(kPage, {{"title", html_text(heading(records))},
                        {"style", kStyle},
                        {"script", kScript},
                        {"began", html_text(began(records))},
                        {"tiles", tiles_html(records)},
                        {"notes", notes_html(notes)},
                        {"charts", charts_html(records, charts, buckets)},
                        {"tables", tables},
                        {"data", data_json(records, charts, buckets)}});
}

}  // namespace gannet::report
