"""What a person would see of a view in a browser: parts that are cut off, the color of its figures, their legends."""

# Elements that reach over the right edge of any box around the view, except in a box with its own scroll bar.
CUT_OFF = """root => {
  const EMPTY = new Set(['bk-GlyphRenderer', 'bk-Title'])  // stand for what is drawn on the canvas
  const parent = element => element.parentElement ?? element.getRootNode().host
  const found = []
  let edge = document.documentElement.clientWidth + 1
  for (let around = root; around; around = parent(around)) {
    const box = around.getBoundingClientRect()
    if (box.width) edge = Math.min(edge, box.right + 1)  // some have no box
  }
  const visit = element => {
    if (!element.checkVisibility({visibilityProperty: true}) || EMPTY.has(element.className)) return
    const box = element.getBoundingClientRect()
    if (box.width && box.height && box.right > edge) found.push(`${box.right}: ${element.outerHTML.slice(0, 150)}`)
    if (['auto', 'scroll'].includes(getComputedStyle(element).overflowX)) return
    for (const child of [...(element.shadowRoot?.children ?? []), ...element.children]) visit(child)
  }
  visit(root)
  return found
}"""
# The colors at the corners of all figures.
CORNERS = """root => {
  const found = new Set()
  const visit = element => {
    if (element.tagName === 'CANVAS' && element.width > 200 && element.checkVisibility())
      found.add([...element.getContext('2d').getImageData(2, 2, 1, 1).data].join())
    for (const child of [...(element.shadowRoot?.children ?? []), ...element.children]) visit(child)
  }
  visit(root)
  found.delete('0,0,0,0')  // layers above the figure
  return [...found]
}"""
# Entries of all legends that are seen, each with the number of pixels of its sample that are drawn.
LEGENDS = """root => {
  const found = []
  const visit = element => {
    if (element.matches?.('.bk-item:has(.bk-glyph)') && element.checkVisibility()) {
      const sample = element.querySelector('canvas')
      const data = sample.width ? sample.getContext('2d').getImageData(0, 0, sample.width, sample.height).data : []
      found.push([element.textContent, data.filter((value, i) => i % 4 === 3 && value).length])
    }
    for (const child of [...(element.shadowRoot?.children ?? []), ...element.children]) visit(child)
  }
  visit(root)
  return found
}"""
# The colors of cards, and of the paper of drawings.
PAPERS = """root => {
  const cards = [...root.querySelectorAll('.dlrover-card')].map(card => getComputedStyle(card).backgroundColor)
  const drawings = [...root.querySelectorAll('svg > rect:first-of-type')].map(paper => getComputedStyle(paper).fill)
  return [cards.length && drawings.length, ...new Set([...cards, ...drawings])]
}"""
# Pairs of texts and controls, neither within the other, that share a place; what a box scrolls away has none.
OVERLAPS = """root => {
  const found = []
  const within = (box, frame) => {
    const left = Math.max(box.left, frame.left), right = Math.min(box.right, frame.right)
    const top = Math.max(box.top, frame.top), bottom = Math.min(box.bottom, frame.bottom)
    return {left, right, top, bottom, width: Math.max(0, right - left), height: Math.max(0, bottom - top)}
  }
  const everything = {left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity}
  const visit = (element, frame = everything) => {
    if (!element.checkVisibility({visibilityProperty: true}) || element.classList.contains('bk-Figure')) return
    if (getComputedStyle(element).clipPath !== 'none') return  // it is for screen readers
    const isText = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
    if (element.matches('button, input, select') || (isText && !['STYLE', 'OPTION'].includes(element.tagName))) {
      const range = document.createRange()
      range.selectNodeContents(element)
      const boxes = (element.matches('button, input, select') ? element : range).getClientRects()  // one a line
      for (const box of [...boxes].map(box => within(box, frame)))
        if (box.width && box.height) found.push([element, box])
      return
    }
    const style = getComputedStyle(element)
    const scrolls = ['auto', 'scroll'].includes(style.overflowX) || ['auto', 'scroll'].includes(style.overflowY)
    const seen = scrolls ? within(element.getBoundingClientRect(), frame) : frame
    for (const child of [...(element.shadowRoot?.children ?? []), ...element.children]) visit(child, seen)
  }
  visit(root)
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2
  return found.flatMap(([a, box], i) => found.slice(i + 1).filter(([b, other]) => a !== b && over(box, other))
    .map(([b]) => `${a.outerHTML.slice(0, 80)} and ${b.outerHTML.slice(0, 80)}`))
}"""
BACKGROUND = {"light": "255,255,255,255", "dark": "17,17,17,255"}


def cut_off(view):
    """Return the elements of a view (a locator) that are wider than its place."""
    return view.evaluate(CUT_OFF)


def overlapping(view):
    """Return the pairs of texts and controls of a view that cover each other."""
    return view.evaluate(OVERLAPS)


def is_painted(view, theme):
    """Whether all figures of a view are drawn on the background of a theme."""
    return view.evaluate(CORNERS) == [BACKGROUND[theme]]


def legends(view):
    """Return the entries of all legends of a view: their labels, and those of them that have no sample."""
    entries = view.evaluate(LEGENDS)
    return [label for label, _ in entries], [label for label, n_pixel in entries if not n_pixel]


def is_on(view, theme):
    """Whether all cards and all drawings of a saved view have the background of a theme."""
    red, green, blue, _ = BACKGROUND[theme].split(",")
    some, *papers = view.evaluate(PAPERS)
    return some and papers == [f"rgb({red}, {green}, {blue})"]
