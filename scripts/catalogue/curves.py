"""A picture of curves over steps, as SVG text: the same bytes for the same numbers."""

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 44, 16, 36
COLOURS = ["#1f6fb4", "#d1611c", "#3a8a3f", "#8a4fa3"]


def thinned(points, within=0.15):
    """Fewer points for the same line: those left out are at most `within` pixels from it."""
    kept, begin = [points[0]], 0
    for end in range(2, len(points)):
        (x0, y0), (x1, y1) = points[begin], points[end]
        if any(abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y) > within for x, y in points[begin + 1:end]):
            begin = end - 1
            kept.append(points[begin])
    return [*kept, points[-1]]


def picture(curves, scale, right_scale=None):
    """curves: [(values by step, label, is_dashed)], those that are dashed on the scale at the right side."""
    steps = max(len(values) for values, _, _ in curves)

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / (steps - 1)

    def y(value, full):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / full

    def text(px, py, words, anchor="middle", colour="#444"):
        return f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for part in range(5):
        py = y(part, 4)
        lines.append(f'<line x1="{LEFT}" y1="{py:.1f}" x2="{WIDTH - RIGHT}" y2="{py:.1f}" stroke="#ddd"/>')
        lines.append(text(LEFT - 6, py + 4, f"{scale * part / 4:.3g}", "end"))
        if right_scale:
            lines.append(text(WIDTH - RIGHT + 6, py + 4, f"{right_scale * part / 4:.3g}", "start"))
        lines.append(text(x((steps - 1) * part / 4), HEIGHT - BOTTOM + 16, f"{(steps - 1) * part // 4}"))
    for number, (values, label, is_dashed) in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        points = thinned([(x(step), y(value, right_scale if is_dashed else scale)) for step, value in enumerate(values)])
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        dashes = ' stroke-dasharray="5 3"' if is_dashed else ""
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>')
        lines.append(text(LEFT + 8 + number * 160, HEIGHT - 4, label, "start", colour))
    return "\n".join([*lines, "</svg>", ""])
