// Every text of a page whose contrast with what stands behind it is below WCAG AA: 4.5, or 3 for large text.
(() => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  // Red, green, blue and opacity of a colour, however it is written.
  const channels = (color) => {
    if (!known.has(color)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = color;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a));
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const color = channels(getComputedStyle(element).backgroundColor);
    return color[3] === 1 ? color.slice(0, 3) : over(color, behind(element.parentElement));
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const found = new Set();
  let checked = 0;
  const check = (element, color, text) => {
    // What is off needs no contrast, and what only readers aloud get has none.
    if (!element.checkVisibility({ visibilityProperty: true }) || element.closest(':disabled, .sr, .skip:not(:focus)')) return;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const contrast = ratio(over(channels(color), ground), ground);
    checked += 1;
    if (contrast < (isLarge ? 3 : 4.5)) found.add(`${contrast.toFixed(2)}: ${element.className || element.tagName} "${text.trim().slice(0, 30)}"`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement, data } = texts.currentNode;
    if (data.trim() && !parentElement.closest('script, option')) check(parentElement, getComputedStyle(parentElement).color, data);
  }
  for (const field of document.querySelectorAll('input:not([type=hidden]), select, textarea')) {
    check(field, getComputedStyle(field).color, field.value || field.name);
    if (field.placeholder) check(field, getComputedStyle(field, '::placeholder').color, field.placeholder);
  }
  return checked < 10 ? ['too little was checked'] : [...found];
})()
